// Tests the page's pure modules in node: node --test Tests/Console/values.test.mjs
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";

const source = name => import(new URL(`../../Console/shared_device/${name}.js`, import.meta.url));
const [answers, words, rounds, day, entries, bus, choices, dialogs, texts] = await Promise.all(["answers", "words", "rounds", "day", "entries", "bus", "choice", "dialogs", "texts"].map(source));

const report = await import(new URL("../../Console/report/report.js", import.meta.url));
const [fleet, devices] = await Promise.all(["controller", "rows"].map(name => import(new URL(`../../Console/shared_device_fleet/${name}.js`, import.meta.url))));

const textsIn = async language => JSON.parse(await readFile(new URL(`../../Console/shared_device/texts.${language}.json`, import.meta.url), "utf8"));
const english = await textsIn("en");
texts.useTexts(english, "en");

const app = (identifier, fields) => ({ identifier, user: 1000, progress: "owed", told: null, begun: null, finished: null, detail: "", runs: true, ...fields });
const round = (...apps) => ({ session: 7, endedAt: 1000, outcome: "open", apps });
const entry = (sequence, event, fields = {}) => ({ sequence, at: 1000 + sequence, event, session: 7, app: "", user: null, detail: "", ...fields });

test("a response is read whatever its content is", () => {
    const v = (t, v) => ({ t, v });
    const device = answers.deviceOf({
        revision: v("t", 4), account: v("a{sv}", { username: v("s", "ada") }), apps: v("aa{sv}", [{ identifier: v("s", "a"), owes: v("at", [3]) }]), rounds: v("at", [3]),
    });
    assert.equal(device.account.name, "ada");
    assert.deepEqual(device.apps[0].owes, [3]);
    const broken = answers.deviceOf({ storeProblem: v("s", "full"), enforcementProblems: v("as", ["a cannot be stopped", "b has no manifest"]), manifestProblems: v("as", ["c deletes /"]) });
    assert.deepEqual(broken.problems, ["full", "a cannot be stopped", "b has no manifest", "c deletes /"]);
    const { certificates } = answers.deviceOf({ certificates: v("aa{sv}", [{ use: v("s", "provider"), file: v("s", "a.pem"), end: v("d", 20 * 86400) }, { use: v("s", "fleetAgent"), problem: v("s", "b.pem cannot be read") }, {}]) });
    assert.deepEqual(certificates.map(certificate => words.term(certificate, 86400)), [
        { isBad: true, text: "the provider’s authority (a.pem): ends in 19 days" }, { isBad: true, text: "the fleet agent’s certificate: b.pem cannot be read" }, { isBad: true, text: ": its end is unknown" },
    ]);
    assert.deepEqual(words.term({ ...certificates[0], end: 31 * 86400 }, 86400), { isBad: false, text: "the provider’s authority (a.pem): ends in 30 days" });
    for (const wrong of [{}, { apps: v("s", "x"), certificates: v("s", "x"), account: v("u", 0), rounds: v("as", ["a"]), revision: v("s", "") }]) {
        const empty = answers.deviceOf(wrong);
        assert.deepEqual([empty.account, empty.apps, empty.rounds, empty.revision], [null, [], [], 0]);
        assert.equal(answers.roundOf(wrong), null);
        assert.deepEqual(answers.entriesOf(wrong), []);
    }
});

test("only an error of the broker is a refusal; other failures mean that it is gone", () => {
    assert.equal(answers.problemOf({ name: "org.notifycenter.SharedDevice1.Error.not_permitted" }), "denied");
    for (const error of [{ name: "org.freedesktop.DBus.Error.ServiceUnknown" }, { problem: "not-found" }, new Error("late"), null])
        assert.equal(answers.problemOf(error), "gone");
    assert.equal(answers.problemOf({ name: "org.freedesktop.DBus.Error.LimitsExceeded" }), "busy");
});

test("spans are short and not too precise", () => {
    const known = [[0, "0 ms"], [0.0074, "7 ms"], [0.9999, "1.0 s"], [1.44, "1.4 s"], [59.7, "1 min"], [200, "3 min 20 s"], [7500, "2 h 5 min"], [273600, "3 d 4 h"], [-1, "0 ms"]];
    for (const [seconds, text] of known)
        assert.equal(words.span(seconds), text);
});

test("names are as short as possible and still distinct", () => {
    const name = words.namesOf(["org.a.notes", "org.b.notes", "org.a.mail", "/usr/bin/shop (uid 7)"]);
    assert.deepEqual(["org.a.notes", "org.a.mail", "/usr/bin/shop (uid 7)", "x"].map(name), ["org.a.notes", "mail", "shop", "x"]);
});

test("the question before a sign-out has the number of apps that hold data", () => {
    const device = apps => ({ account: { name: "Ada" }, apps: apps.map(holds => ({ holds })) });
    assert.match(words.consequence(device([true, true, true, false])), /3 apps hold data/);
    assert.match(words.consequence(device([true])), /1 app holds data/);
    assert.match(words.consequence(device([false])), /No app holds data/);
});

test("a row has a bar for each stage, and a mark for each time", () => {
    const [row] = rounds.rowsOf(round(app("a", { progress: "finished", told: 0.1, begun: 0.2, finished: 0.5 })), [], 2000, key => key, words.span);
    assert.deepEqual(row.bars.map(bar => [bar.kind, bar.from, bar.to]), [["owed", 0, 0.1], ["heard", 0.1, 0.2], ["cleaning", 0.2, 0.5]]);
    assert.deepEqual(row.marks.map(mark => mark.kind), ["told", "begun", "finished"]);
    assert.equal(row.word, "clean after 500 ms");
});

test("pending apps come first, last until now, and are marked if they do not run", () => {
    const rows = rounds.rowsOf(round(app("a", { progress: "finished", finished: 1 }), app("z", { progress: "begun", told: 1, begun: 2, runs: false })), [], 1060, key => key, words.span);
    assert.deepEqual(rows.map(row => row.identifier), ["z", "a"]);
    assert.deepEqual(rows[0].bars.at(-1), { kind: "cleaning", from: 2, to: 60, isOpen: true });
    assert.equal(rows[0].word, "cleans up, is not running");
});

test("failed and interrupted cleanups each have a sign and a word", () => {
    const lines = [entry(3, "interrupted", { app: "a", user: 1000 }), entry(4, "interrupted", { app: "a", user: 1001 }), entry(5, "interrupted", { app: "a", session: 8 })];
    const [row] = rounds.rowsOf(round(app("a", { progress: "failed", told: 1, begun: 2, finished: 9, detail: "disk" })), lines, 1020, key => key, words.span);
    assert.deepEqual(row.marks.map(mark => mark.kind), ["told", "begun", "interrupted", "failed"]);
    assert.deepEqual([row.sign, row.word, row.style], ["✗", "failed", "bad"]);
    assert.equal(row.lines.length, 1);
    const [again] = rounds.rowsOf(round(app("a", { progress: "finished", told: 1, begun: 2, finished: 9 })), [entry(4, "failed", { app: "a" })], 1020, key => key, words.span);
    assert.deepEqual(again.marks.map(mark => mark.kind), ["told", "begun", "failed", "finished"]);
    assert.equal(rounds.summaryOf(round(row.app), 1020, words.span).style, "bad");
});

test("the table has the content of the drawing: marks, words and lines of the log", () => {
    const lines = [entry(3, "interrupted", { app: "a", user: 1000, detail: "it was killed" }), entry(9, "failed", { app: "a", user: 1000, detail: "disk" })];
    const rows = rounds.rowsOf(round(app("a", { progress: "failed", told: 1, begun: 2, finished: 9, detail: "disk" }), app("b", { progress: "waived", finished: 30, detail: "lost in repair" })), lines, 1040, key => key, words.span);
    const { heads, cells } = rounds.tableOf(rows, words.span);
    const cell = (row, head) => cells[row][heads.indexOf(head)];
    assert.deepEqual(cells.map(row => row.length), [heads.length, heads.length]);
    assert.equal(cell(0, "Besides"), "ended before it was done after 3.0 s, could not clean up after 9.0 s");
    assert.deepEqual([cell(0, "State"), cell(0, "Its message"), cell(0, "Log")], ["✗ failed", "disk", "interrupted it was killed; failed disk"]);
    assert.deepEqual([cell(1, "State"), cell(1, "Its message"), cell(1, "Log")], ["W waived", "The administrator’s reason: lost in repair", "–"]);
    for (const [index, row] of rows.entries()) {
        const all = cells[index].join(" ");
        for (const mark of row.marks.filter(each => !["told", "begun", "finished"].includes(each.kind)))
            assert.ok(all.includes(rounds.meaningOf(mark.kind)) && all.includes(words.span(mark.at)), `${mark.kind}: ${all}`);
    }
});

test("if the chosen round is no longer stored, the page shows the last round", async () => {
    const asked = [];
    const choice = new choices.RoundChoice(async session => { asked.push(session); return session === 3 ? null : { session }; });
    assert.deepEqual([await choice.round([]), asked], [null, []]);
    choice.choose(3);
    assert.deepEqual(await choice.round([3, 4, 5]), { session: 5 });
    assert.deepEqual([choice.wanted, asked], [null, [3, 5]]);
    choice.choose(4);
    assert.deepEqual([await choice.round([4, 5]), choice.wanted], [{ session: 4 }, 4]);
    // The device no longer names the session.
    assert.deepEqual([await choice.round([5, 6]), choice.wanted], [{ session: 6 }, null]);
});

test("a response for an older choice, or older than the shown response, is ignored", async () => {
    const open = [];
    const choice = new choices.RoundChoice(session => new Promise(resolve => open.push({ session, answer: words => resolve({ session, words }) })));
    const followed = choice.round([3, 4]);
    choice.choose(3);
    const wanted = choice.round([3, 4]);
    assert.deepEqual(open.map(each => each.session), [4, 3]);
    open[1].answer("wanted");
    assert.deepEqual(await wanted, { session: 3, words: "wanted" });
    open[0].answer("old");
    await new Promise(resolve => setImmediate(resolve));
    assert.deepEqual(open.map(each => each.session), [4, 3, 3]);
    open[2].answer("newest");
    assert.deepEqual(await followed, { session: 3, words: "newest" });
    const [slow, quick] = [choice.round([3, 4]), choice.round([3, 4])];
    open[4].answer("quick");
    assert.equal((await quick).words, "quick");
    open[3].answer("slow");
    await new Promise(resolve => setImmediate(resolve));
    open[5].answer("again");
    assert.equal((await slow).words, "again");
});

test("CO-3: a session number near 2⁵³ is not rounded", () => {
    const [v, last] = [(t, v) => ({ t, v }), Number.MAX_SAFE_INTEGER];
    const device = answers.deviceOf({ epoch: v("t", last), rounds: v("at", [last - 1, last]), apps: v("aa{sv}", [{ identifier: v("s", "a"), owes: v("at", [last]) }]) });
    assert.deepEqual([device.epoch, device.rounds, device.apps[0].owes], [last, [last - 1, last], [last]]);
    assert.equal(answers.roundOf({ round: v("a{sv}", { session: v("t", last) }) }).session, last);
    assert.equal(answers.entriesOf({ entries: v("aa{sv}", [{ session: v("t", last) }]) })[0].session, last);
    // As Cockpit writes it to the bus.
    assert.equal(JSON.stringify(bus.unsigned(device.epoch)), "{\"t\":\"t\",\"v\":9007199254740991}");
});

test("each bar has a contrast of at least 3:1 with the paper, in light and dark", async () => {
    const style = await readFile(new URL("../../Console/shared_device/shared-device.css", import.meta.url), "utf8");
    const drawn = [...style.matchAll(/svg \.([a-z.-]+) \{([^}]*)\}/g)].filter(([, name]) => /^(owed|heard|cleaning|broken|away|hatch|day\.|part\.)/.test(name));
    const names = new Set(drawn.flatMap(([, , rules]) => [...rules.matchAll(/(?:fill|stroke): var\(--([a-z-]+)\)/g)].map(([, name]) => name)));
    assert.ok(["owed", "heard", "cleaning", "bad", "fault", "account", "nobody", "good"].every(name => names.has(name)), [...names].join(" "));
    const light = hex => {
        const [red, green, blue] = [1, 3, 5].map(place => parseInt(hex.slice(place, place + 2), 16) / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    for (const theme of ["light", "dark"]) {
        const block = style.match(new RegExp(`\\[data-theme="${theme}"\\] \\{([^}]*)\\}`))[1];
        const colours = new Map([...block.matchAll(/--([a-z-]+): (#[0-9a-f]{6})/g)].map(([, name, hex]) => [name, light(hex)]));
        for (const name of names) {
            const [dark, bright] = [colours.get(name), colours.get("paper")].sort((one, other) => one - other);
            assert.ok((bright + 0.05) / (dark + 0.05) >= 3, `${theme}: --${name}`);
        }
    }
});

test("axes have few ticks with round numbers, from milliseconds to days", () => {
    for (const seconds of [0.004, 0.3, 7, 95, 4000, 200000]) {
        const axis = rounds.axisOf([{ bars: [{ to: seconds }], marks: [] }], 700);
        assert.ok(axis.end >= seconds && axis.ticks.length >= 2 && axis.ticks.length <= 9, `${seconds}: ${axis.ticks}`);
    }
    assert.deepEqual(rounds.axisOf([{ bars: [{ to: 95 }], marks: [] }], 400).ticks, [0, 30, 60, 90]);
});

test("marks that would overlap are placed side by side on the line", () => {
    assert.deepEqual(rounds.spread([0, 1, 100, 299], 20, 300), [10, 30, 100, 290]);
    const many = rounds.spread([290, 290, 290], 20, 300);
    assert.deepEqual(many, [250, 270, 290]);
});

test("a day has its three states, and is unknown before the first entry of the log", () => {
    const log = [entry(100, "signed-in"), entry(200, "signed-out"), entry(260, "completed"), entry(300, "signed-in", { session: 8 })];
    const states = isWhole => day.segmentsOf(log, 1000, 1400, isWhole).map(segment => [segment.state, segment.from, segment.to]);
    const rest = [["signed-in", 1100, 1200], ["cleaning", 1200, 1260], ["nobody", 1260, 1300], ["signed-in", 1300, 1400]];
    log.unshift(entry(40, "mode-changed", { session: null }));
    assert.deepEqual(states(true), [["unknown", 1000, 1040], ["nobody", 1040, 1100], ...rest]);
    assert.deepEqual(states(false), [["unknown", 1000, 1100], ...rest]);
    const cut = day.segmentsOf(log.slice(2), 1000, 1400, false)[0];
    assert.deepEqual([cut.state, cut.to], ["signed-in", 1200]);
});

test("a time without a response is unknown, whatever the log contains", () => {
    const parts = day.withOutages([{ state: "nobody", from: 0, to: 100 }], [{ from: 40, to: 60 }]);
    assert.deepEqual(parts.map(part => [part.state, part.from, part.to]), [["nobody", 0, 40], ["unknown", 40, 60], ["nobody", 60, 100]]);
});

test("log entries are kept once each, in order, and up to the limit of the page", () => {
    const known = [entry(5, "told"), entry(6, "told")];
    assert.deepEqual(entries.merged(known, [entry(3, "told"), entry(5, "told"), entry(7, "told")]).map(each => each.sequence), [3, 5, 6, 7]);
    const many = Array.from({ length: entries.most + 10 }, (_, index) => entry(index, "told"));
    assert.equal(entries.merged([], many).length, entries.most);
    assert.deepEqual(entries.filtered([entry(1, "failed", { app: "a" }), entry(2, "told", { app: "a", detail: "Disk" }), entry(3, "told", { app: "b" })], { text: "disk", event: "told", app: "a" }).map(each => each.sequence), [2]);
});

test("of 10,000 rows only the visible ones are drawn", () => {
    const { first, end } = entries.visible(10000, 32, 160000, 416);
    assert.ok(first <= 5000 && end >= 5013 && end - first < 40);
    assert.deepEqual(entries.visible(0, 32, 0, 416), { first: 0, end: 0 });
});

test("a check's sign-out has a row for each process, until the last receipt", () => {
    const event = (milliseconds, lane, kind) => ({ milliseconds, lane, kind, text: kind });
    const round = {
        session: 1, user: "ada", observed: 18000,
        apps: [{ identifier: "a", isClean: true, heardAfter: 2, begunAfter: 3, cleanedAfter: 300, summary: "clean" }, { identifier: "b", isClean: false, summary: "has not heard" }],
        events: [event(-20000, "b", "started"), event(-5, "b", "stopped"), event(0, "device", "signOut"), event(2, "a", "told"), event(300, "a", "finished"), event(60000, "device", "signIn")],
    };
    const [device, one, other] = report.reportRows(round, { a: "A", b: "B" });
    assert.deepEqual([device.name, device.word, device.marks.map(mark => mark.kind)], ["device", "", ["signOut"]]);
    assert.deepEqual([one.name, one.word, one.done, one.bars.map(bar => bar.kind)], ["A", "clean after 300 ms", true, ["owed", "heard", "cleaning"]]);
    assert.deepEqual([other.word, other.done], ["not clean: has not heard", false]);
    assert.deepEqual(other.bars, [{ kind: "owed", from: 0, to: 18, isOpen: true }, { kind: "away", from: -0.005, to: 18, isOpen: true }]);
    const clean = { ...round, apps: round.apps.slice(0, 1), events: round.events.filter(each => each.lane !== "b") };
    assert.equal(Math.max(...report.reportRows(clean, {}).flatMap(row => row.bars.map(bar => bar.to))), 0.3, "the wait after the last receipt is not drawn");
    const axis = rounds.axisOf(report.reportRows(round, {}), 700);
    assert.ok(axis.begin < 0 && axis.ticks.includes(0), "what was before the sign-out is on the axis");
});

test("a controller's responses are read whatever their content is", () => {
    const v = (t, v) => ({ t, v });
    for (const wrong of [{}, { devices: v("s", "x"), counts: v("u", 1), rounds: v("as", ["a"]), orders: v("at", [1]) }]) {
        assert.deepEqual(fleet.pageOf(wrong).devices, []);
        assert.deepEqual([fleet.progressOf(wrong).undone, fleet.ordersOf(wrong), fleet.deviceOf(wrong).rounds.length], [Infinity, [], wrong.rounds ? 1 : 0]);
    }
    assert.deepEqual([fleet.pageOf({}).refusal, fleet.pageOf({ refusal: v("s", "no right") }).refusal], ["", "no right"]);
    assert.deepEqual([fleet.pageOf({}).warning, fleet.pageOf({ warning: v("s", "ends soon") }).warning], ["", "ends soon"]);
    const device = fleet.deviceOf({ device: v("s", "ward-1"), state: v("s", "cleaning"), rounds: v("aa{sv}", [{ session: v("t", 7), endedAt: v("d", 1000), outcome: v("s", "open"), more: v("t", 2),
        apps: v("aa{sv}", [{ identifier: v("s", "a"), progress: v("s", "begun"), toldAfter: v("d", 0.1), begunAfter: v("d", 0.2) }]) }]) });
    assert.deepEqual([device.rounds[0].session, device.rounds[0].more, device.rounds[0].apps[0].begun], [7, 2, 0.2]);
});

test("an order that names fewer devices than it has shows their total number", () => {
    const v = (t, v) => ({ t, v });
    const orders = fleet.ordersOf({ orders: v("aa{sv}", [{ order: v("t", 9), count: v("t", 3000), devices: v("as", []) }, { order: v("t", 8), devices: v("as", ["a"]) }]) });
    assert.deepEqual(orders.map(order => order.devices), [3000, 1]);
});

test("devices are found by name, group and app; invalid states count as unknown", () => {
    const row = (name, state, fields) => ({ name, state, groups: [], owing: [], detail: "", problems: [], ...fields });
    const all = [row("b", "clean"), row("a", "clean"), row("c", "cleaning", { owing: ["notes (begun)"] }), row("d", "unknown", { groups: ["shop"] }), row("e", "")];
    assert.deepEqual(devices.found(all, { text: "", state: "" }).map(each => each.name), ["d", "c", "a", "b", "e"]);
    assert.deepEqual(devices.found(all, { text: "NOTES", state: "" }).map(each => each.name), ["c"]);
    assert.deepEqual(devices.found(all, { text: "shop", state: "unknown" }).map(each => each.name), ["d"]);
    assert.equal(devices.stateOf(row("x", "constructor")), "unknown");
    const rows = devices.restated(devices.updated(new Map([["c", all[2]]]), [row("c", "cleaning")]), [row("c", "stuck")]);
    assert.equal(rows.get("c").state, "stuck");
    const standing = devices.standingOf(row("c", "stuck", { owes: 2, since: 5 }));
    assert.deepEqual([standing.state, standing.owes, standing.since, "name" in standing], ["stuck", 2, 5, false]);
});

test("a certificate's remaining time is shown in days, and is empty if unreported", () => {
    const said = end => devices.termOf({ certificateEnd: end === null ? null : 1000 + end * 86400 }, 1000);
    assert.deepEqual([said(null), said(12.5), said(1), said(0.5), said(-3)], ["", "ends in 12 days", "ends in 1 day", "ends within a day", "has ended"]);
});

test("the session is shown as last reported if offline, or unknown without its broker", () => {
    const said = (mode, session, isOnline) => devices.signedInOf({ mode, session, isOnline });
    assert.deepEqual([said("shared", 7, true), said("shared", null, true)], ["session 7", "no account"]);
    for (const isOnline of [false, null])
        assert.deepEqual([said("shared", 7, isOnline), said("shared", null, isOnline)], ["session 7 at the last report", "no account at the last report"]);
    assert.deepEqual([said("unknown", null, true), said("unknown", null, false), said("", null, true)], ["unknown", "unknown", "–"]);
});

test("an unknown progress is shown as received, also names of object properties", () => {
    for (const progress of ["constructor", "toString", "__proto__", "other"]) {
        const [row] = rounds.rowsOf(round(app("a", { progress })), [], 2000, key => key, words.span);
        assert.deepEqual([row.sign, row.word, row.style], ["?", progress, "waits"]);
    }
});

test("an order's bar is full, and its sentence counts the pending devices", () => {
    const parts = devices.partsOf({ counts: { clean: 3, unknown: 1 }, total: 4 });
    assert.deepEqual(parts.map(part => [part.state, part.from, part.to]), [["clean", 0, 0.75], ["unknown", 0.75, 1]]);
    assert.match(devices.sentenceOf({ total: 4, undone: 1, waived: 0 }).text, /3 of 4 devices have done it, 1 has not/);
    assert.match(devices.sentenceOf({ total: 1, undone: 0, waived: 1, enforced: 2 }).text, /1 app was waived on the devices\. 2 apps were stopped by the devices/);
    assert.match(devices.sentenceOf({ total: 0, undone: 0, waived: 0 }).text, /there is nothing to wait for/);
});

test("CO-3, CO-5: no module makes HTML or code from text; pages have no inline code", async () => {
    for (const folder of ["shared_device", "shared_device_fleet", "report"]) {
        const place = new URL(`../../Console/${folder}/`, import.meta.url);
        const files = (await readdir(place)).filter(name => /\.(js|html)$/.test(name));
        assert.ok(files.some(name => name.endsWith(".js")), folder);
        for (const name of files) {
            const text = await readFile(new URL(name, place), "utf8");
            const wrong = name.endsWith(".html") ? /<script(?![^>]*\ssrc=)|<style|\s(style|on[a-z]+|srcdoc)=|javascript:/i
                : /innerHTML|outerHTML|insertAdjacentHTML|setHTML|DOMParser|createContextualFragment|srcdoc|document\.write|\beval\(|new Function|javascript:/;
            assert.equal(text.match(wrong)?.[0], undefined, `${folder}/${name}`);
        }
    }
});

test("a pause ends once, by time or by a wake-up, and leaves nothing behind", async () => {
    const [before, timers, cleared] = [globalThis.window, [], []];
    globalThis.window = {
        cockpit: { permission: () => ({ addEventListener() {} }) },
        setTimeout: end => timers.push(end), clearTimeout: timer => cleared.push(timer),
    };
    try {
        const service = new bus.BusService("org.example.Service", "/");
        const [first, second] = [service.pause(1), service.pause(30)];
        timers[0]();
        await first;
        cleared.length = 0;
        service.wake();
        await second;
        assert.deepEqual(cleared, [2], "the ended pause is not woken again, and the timer of the other one is cleared");
        service.wake();
        assert.deepEqual(cleared, [2]);
    } finally {
        globalThis.window = before;
    }
});

test("a late response for a closed question does not affect the next question", async () => {
    const before = globalThis.document;
    const submit = { disabled: false };
    const form = { cancel: {}, querySelector: name => name === ".cancel" ? form.cancel : submit };
    const dialog = { isOpen: false, querySelector: () => form, showModal() { this.isOpen = true; }, close() { this.isOpen = false; } };
    const problem = { textContent: "" };
    globalThis.document = { getElementById: name => name === "waive-dialog" ? dialog : problem };
    const send = () => form.onsubmit({ preventDefault() {} });
    try {
        for (const refusal of [null, new Error("not permitted")]) {
            let answer;
            dialogs.ask("waive", () => new Promise((resolve, reject) => { answer = () => refusal ? reject(refusal) : resolve(); }));
            const sent = send();
            assert.ok(submit.disabled);
            form.cancel.onclick();
            dialogs.ask("waive", async () => { throw new Error("of the second one"); });
            answer();
            await sent;
            assert.deepEqual([dialog.isOpen, problem.textContent, submit.disabled], [true, "", false]);
            await send();
            assert.deepEqual([dialog.isOpen, problem.textContent, submit.disabled], [true, "of the second one", false]);
            dialogs.ask("waive", async () => {});
            await send();
            assert.ok(!dialog.isOpen);
        }
    } finally {
        globalThis.document = before;
    }
});

// MARK: The texts

const languages = ["en", "de", "es", "tr", "zh-TW"];

/** The code of the console's modules and pages by name, without comments. */
async function sources(kind) {
    const all = [];
    for (const folder of ["shared_device", "shared_device_fleet"]) {
        const place = new URL(`../../Console/${folder}/`, import.meta.url);
        for (const name of (await readdir(place)).filter(each => each.endsWith(kind)))
            all.push([`${folder}/${name}`, (await readFile(new URL(name, place), "utf8")).replace(/\/\*[^]*?\*\/|(^|\s)\/\/.*$|<!--[^]*?-->/gm, "$1")]);
    }
    return all;
}

/** The string literals of a module, each with the code before it. An expression in a template becomes `{}`. */
function literalsOf(code) {
    const found = [];
    const read = start => {
        let place = start;
        for (; place < code.length && code[place] !== "}"; place += 1) {
            const quote = code[place];
            if (quote === "{")
                place = read(place + 1);
            if (quote !== "\"" && quote !== "`")
                continue;
            const before = code.slice(0, place);
            let literal = "";
            for (place += 1; place < code.length && code[place] !== quote; place += 1) {
                const isValue = quote === "`" && code.startsWith("${", place);
                literal += isValue ? "{}" : code[place];
                place = isValue ? read(place + 2) : place;
            }
            found.push({ literal, before });
        }
        return place;
    };
    read(0);
    return found;
}

test("each language has each text, with the same values and its own plurals", async () => {
    const files = (await readdir(new URL("../../Console/shared_device/", import.meta.url))).filter(name => name.startsWith("texts."));
    assert.deepEqual(files.sort(), ["texts.js", ...languages.map(language => `texts.${language}.json`)].sort());
    const valuesOf = text => [...new Set(text.match(/\{\w*\}/g))].sort();
    for (const language of languages) {
        const all = await textsIn(language);
        assert.deepEqual(Object.keys(all), Object.keys(english), language);
        // Spanish has “many” for whole millions; `other` does for them.
        const plurals = new Intl.PluralRules(language).resolvedOptions().pluralCategories.filter(category => category !== "many").sort();
        for (const [key, entry] of Object.entries(all)) {
            if (typeof entry !== "string")
                assert.deepEqual(Object.keys(entry).sort(), plurals, `${language}: ${key}`);
            const wanted = valuesOf(english[key].other ?? english[key]);
            for (const text of typeof entry === "string" ? [entry] : Object.values(entry)) {
                assert.ok(text.trim() === text && text, `${language}: ${key}`);
                // A form for one thing may leave its number out.
                const values = valuesOf(text);
                assert.deepEqual(text === entry.one ? [...new Set([...values, "{count}"])].filter(value => wanted.includes(value)).sort() : values, wanted, `${language}: ${key}`);
            }
        }
    }
});

test("the pages use each text, and no other", async () => {
    const used = new Set((await sources(".html")).flatMap(([, page]) => [...page.matchAll(/data-text="([^"]*)"/g)].map(([, key]) => key)));
    for (const [name, code] of await sources(".js"))
        for (const { literal, before } of literalsOf(code)) {
            // The first argument, or one branch of it.
            const isKey = /say\((?:[^(),]*[?:] )?$/.test(before.slice(before.lastIndexOf("say("))) && !literal.includes("{}");
            if (isKey || Object.hasOwn(english, literal))
                used.add(literal);
            assert.ok(!isKey || Object.hasOwn(english, literal), `${name}: ${literal}`);
        }
    const families = {
        unit: ["ms", "s", "min", "h", "d"], sign: Object.keys(rounds.signs), day: day.dayStates, bar: ["owed", "heard", "cleaning", "broken", "away"],
        progress: ["owed", "told", "begun", "failed", "finished", "waived", "enforced"], state: Object.keys(devices.states).flatMap(state => [state, `${state}.meaning`]),
        "certificate.of": words.certificateUses, table: ["app", "user", "state", "told", "begun", "ended", "besides", "message", "log"],
        fact: ["device", "state", "signedIn", "network", "lastReport", "groups", "certificate", "notes", "response"],
    };
    for (const [family, names] of Object.entries(families))
        for (const name of names)
            used.add(`${family}.${name}`);
    assert.deepEqual([...used].sort(), Object.keys(english).sort());
});

test("no page and no module has a text of its own", async () => {
    for (const [name, page] of await sources(".html")) {
        assert.equal(page.replace(/<[^>]*>/g, "").match(/\p{L}+/u)?.[0], undefined, name);
        assert.equal(page.match(/\s(aria-label|title|placeholder|alt)=/)?.[0], undefined, name);
    }
    const isCode = ({ literal, before }) => /(class: |class: tick === 0 \? |matchMedia\(|\.call\(|formatOf\(|event\.key === )$/.test(before) || literal === "the console";
    for (const [name, code] of await sources(".js"))
        for (const each of literalsOf(code).filter(literal => !isCode(literal))) {
            const isText = /\p{L}{2}.*\s.*\p{L}{2}|^\p{Lu}\p{Ll}+/u.test(each.literal) || /(\}, |write\([^,]*, )$/.test(each.before) && /\p{L}{2}/u.test(each.literal);
            assert.ok(!isText, `${name}: ${each.literal}`);
        }
});

test("the language is the first wanted one that has texts, whatever the tags are", () => {
    const known = [
        [[], "en", "en"], [["fr", "de-AT"], "de", "de-AT"], [["de_DE", "en"], "de", "de"], [["zh-tw"], "zh-TW", "zh-tw"], [["zh-Hant-HK"], "zh-TW", "zh-TW"],
        [["zh-Hans-TW", "tr"], "tr", "tr"], [["zh-CN"], "en", "en"], [["es-419"], "es", "es"], [["", "-", "de-@@", "constructor"], "de", "de"], [["en-GB", "de"], "en", "en-GB"],
    ];
    for (const [wanted, language, locale] of known)
        assert.deepEqual(texts.languageOf(wanted), { language, locale }, wanted.join());
});

test("numbers, plurals, lists and times are those of the language", async () => {
    const said = [];
    try {
        for (const language of languages) {
            texts.useTexts(await textsIn(language), language);
            said.push([texts.say("devices.listed", { count: 1 }), texts.say("devices.listed", { count: 1234567 }), words.span(273600), words.span(1.44), texts.listed(["a", "b"])]);
            assert.match(words.clock(0, 0), /^\d\d:\d\d:\d\d$/);
            assert.match(words.clock(0, 1e9), /19(69|70).*\d\d:\d\d:\d\d$/);
            assert.deepEqual([words.clock(1e300, 0), words.clock(NaN, 0)], ["–", "–"], "a device may report any time");
        }
    } finally {
        texts.useTexts(english, "en");
    }
    assert.deepEqual(said, [
        ["1 device in the list.", "1,234,567 devices in the list.", "3 d 4 h", "1.4 s", "a and b"],
        ["1 Gerät in der Liste.", "1.234.567 Geräte in der Liste.", "3 Tage 4 h", "1,4 s", "a und b"],
        ["1 dispositivo en la lista.", "1.234.567 dispositivos en la lista.", "3 días 4 h", "1,4 s", "a y b"],
        ["Listede 1 cihaz var.", "Listede 1.234.567 cihaz var.", "3 gün 4 sa", "1,4 sn", "a ve b"],
        ["清單中有 1 部裝置。", "清單中有 1,234,567 部裝置。", "3 天 4 小時", "1.4 秒", "a和b"],
    ]);
});

test("a value is not filled again, and a missing text is its key", () => {
    assert.equal(texts.say("announce.order", { order: "{sentence}", sentence: "$& {order}" }), "Order {sentence}: $& {order}");
    assert.deepEqual(["constructor", "no.such"].map(key => texts.say(key)), ["constructor", "no.such"]);
});
