// The console of a shared device: follows the broker's state and draws it.

import { deviceOf, entriesOf, problemOf, roundOf } from "./answers.js";
import { Broker } from "./broker.js";
import { RoundChoice } from "./choice.js";
import { ask } from "./dialogs.js";
import { at, fill, followTheme, html, offer, write } from "./dom.js";
import * as drawing from "./drawing.js";
import { segmentsOf, withOutages } from "./day.js";
import { most } from "./entries.js";
import { LogList } from "./loglist.js";
import { loadTexts } from "./language.js";
import { isSettled, rowsOf, summaryOf, tableOf } from "./rounds.js";
import { listed, paragraph, say } from "./texts.js";
import { clock, consequence, namesOf, policy, span, term } from "./words.js";

await loadTexts();

const broker = new Broker();
const state = {
    device: null, round: null,
    /** `asking`, `known`, `gone`, `busy`, `denied`; and whether the log is `busy`. */
    link: "asking", isLogBusy: false,
    /** The device's clock minus this browser's, in seconds; and the device's time of the last response. */
    skew: 0, answeredAt: null,
    opened: new Set(), isTable: false, outages: [], hasWholeLog: false,
};
const now = () => Date.now() / 1000 + state.skew;
const log = new LogList(now);
const choice = new RoundChoice(async session => roundOf(await broker.round(session)));

// MARK: Following

async function followDevice() {
    let [revision, asksPerson] = [null, false];
    for (;;) {
        try {
            const device = deviceOf(await broker.status(revision, asksPerson));
            asksPerson = false;
            const round = await choice.round(device.rounds);
            if (["gone", "busy"].includes(state.link) && state.answeredAt)
                state.outages = [...state.outages, { from: state.answeredAt, to: device.time }].filter(outage => outage.to > device.time - 86400);
            revision = device.revision;
            state.skew = device.time - Date.now() / 1000;
            announce(state.link === "known" ? state.device : null, device, round);
            Object.assign(state, { device, round, link: "known", answeredAt: device.time });
            draw();
        } catch (error) {
            revision = null;
            const link = problemOf(error);
            if (link !== state.link)
                write(at("announcement"), say(link === "denied" ? "device.denied" : link === "busy" ? "tooOften" : "broker.unknown"));
            state.link = link;
            // The right to see the device has ended, so the page removes everything that it showed.
            if (link === "denied") {
                Object.assign(state, { device: null, round: null, hasWholeLog: false });
                log.clear();
            }
            draw();
            await broker.pause(link === "denied" ? 30 : 1);
            asksPerson = wantsToBeAsked;
            wantsToBeAsked = false;
        }
    }
}

let wantsToBeAsked = false;

async function followLog() {
    let [newest, run] = [null, log.run];
    for (;;) {
        try {
            // After a clear the log is loaded from the start, and responses to earlier requests are discarded.
            if (run !== log.run)
                [newest, run] = [null, log.run];
            const entries = entriesOf(await broker.log(newest, newest === null ? 500 : 100, newest !== null));
            if (run !== log.run)
                continue;
            if (newest === null) {
                newest = 0;
                fillLog(entries[0], run);
            }
            newest = Math.max(newest, ...entries.map(entry => entry.sequence));
            state.isLogBusy = false;
            log.add(entries);
            draw();
        } catch (error) {
            state.isLogBusy = problemOf(error) === "busy";
            draw();
            await broker.pause(state.link === "denied" ? 30 : 1);
        }
    }
}

/** Loads the entries before `first`, 500 at a time, up to the number of entries that this page keeps. */
async function fillLog(first, run) {
    let before = first?.sequence ?? 1;
    const end = before - most + 500;
    try {
        while (before > 1 && before > end) {
            const after = Math.max(0, before - 501);
            const entries = entriesOf(await broker.log(after, 500, false));
            if (run !== log.run)
                return;
            log.add(entries.filter(entry => entry.sequence < before));
            before = after + 1;
        }
    } catch {
        // Ignored: the drawing of the day shows the time of missing entries as unknown.
    }
    if (run !== log.run)
        return;
    state.hasWholeLog = before <= 1;
    draw();
}

/** Announces a change to screen readers, in one sentence. */
function announce(before, device, round) {
    const owing = round?.apps.filter(app => !isSettled(app)).length ?? 0;
    const sentence = device.account ? say("announce.signedIn", { name: device.account.name })
        : paragraph(say("announce.nobody"), owing ? say("announce.owing", { count: owing }) : say("announce.clean"));
    if (before === null || before.epoch !== device.epoch || owing === 0)
        write(at("announcement"), sentence);
}

// MARK: Drawing

let isDue = false;
/** The number of apps for which the log has names. */
let named = 0;
/** Draws once before the next frame. A page in the background draws when it becomes visible. */
function draw() {
    if (isDue)
        return;
    isDue = true;
    requestAnimationFrame(() => {
        isDue = false;
        drawNow();
    });
}

function drawNow() {
    const { device, link } = state;
    document.body.dataset.link = link === "busy" ? "gone" : link;
    document.body.dataset.has = device ? "device" : "nothing";
    drawNotice();
    drawSession();
    if (!device)
        return;
    const identifiers = new Set([...device.apps, ...(state.round?.apps ?? [])].map(app => app.identifier).concat(log.entries.map(entry => entry.app).filter(Boolean)));
    const names = namesOf(identifiers);
    if (identifiers.size !== named) {
        named = identifiers.size;
        log.rename(names);
    }
    drawRound(names);
    drawDay();
    drawApps(names);
}

function drawNotice() {
    const notice = at("notice");
    const { link, answeredAt, isLogBusy } = state;
    notice.hidden = link === "known" && !isLogBusy || link === "asking";
    const time = answeredAt ? say("lastResponse", { time: clock(answeredAt, now()) }) : say("noResponseYet");
    if (link === "known") {
        fill(notice, "log", html("strong", {}, say("log.busy")), ` ${say("tooOften")}`);
    } else if (link === "busy") {
        fill(notice, `busy ${time}`, html("strong", {}, say("broker.busy")), ` ${paragraph(say("tooOften"), time)}`);
    } else if (link === "gone") {
        fill(notice, `gone ${time}`, html("strong", {}, say("broker.gone")), ` ${time}`);
    } else if (link === "denied") {
        fill(notice, "denied", html("strong", {}, say("device.denied")), ` ${say("device.denied.remedy")} `,
            html("button", { type: "button", click: () => { wantsToBeAsked = true; broker.wake(); } }, say("askAgain")));
    }
}

function drawSession() {
    const { device, link } = state;
    const isKnown = link === "known";
    write(at("session-heading"), link === "asking" ? say("broker.asking") : !isKnown ? say("unknown") : device.mode !== "shared" ? say("device.personal") : device.account ? device.account.name : say("nobody"));
    at("session").dataset.state = !isKnown ? "unknown" : device.account ? "signed-in" : "nobody";
    write(at("since"), !device ? (["gone", "busy"].includes(link) ? say("since.unknown") : "")
        : !isKnown ? (device.account ? say("since.wasSignedIn", { name: device.account.name }) : say("since.wasNobody"))
        : device.account ? say("since.signedIn", { since: clock(device.signedInAt ?? device.time, now()), time: span(Math.max(1, Math.floor(now() - (device.signedInAt ?? now())))) })
        : device.heldFor.length ? say("since.held", { apps: listed(device.heldFor.map(namesOf(device.heldFor))) }) : say("since.ready"));
    write(at("device"), device?.organization ? say("device.ofOrganization", { organization: device.organization }) : say("device.title"));
    write(at("policy"), device ? policy(device) : "");
    const terms = device?.certificates.map(certificate => term(certificate, now())) ?? [];
    const certificates = terms.filter(term => !term.isBad).map(term => term.text).join("; ");
    write(at("certificates"), certificates && say("certificates", { certificates }));
    const problems = [...device?.problems ?? [], ...terms.filter(term => term.isBad).map(term => term.text)];
    at("problems").hidden = !problems.length;
    write(at("problems"), problems.map(problem => `⚠ ${problem}`).join(" "));
    at("sign-out").disabled = !isKnown || !device.account;
}

let drawnRows = "";
function drawRound(names) {
    const { device, round } = state;
    const heading = at("round-heading");
    const latest = device.rounds[device.rounds.length - 1];
    const choices = [...device.rounds].reverse().map(session => [String(session), session === latest ? say("round.latest", { session: String(session) }) : String(session)]);
    offer(at("round-choice"), choices.length ? choices : [["", say("noneYet")]]);
    at("round-choice").disabled = at("as-table").disabled = !round;
    const box = at("waterfall");
    if (!round) {
        write(at("round-summary"), say("round.none"));
        return box.replaceChildren();
    }
    // The user's choice stays selected while its response is pending.
    const chosen = String(choice.wanted ?? round.session);
    if (chosen !== at("round-choice").value)
        at("round-choice").value = chosen;
    const isOpen = round.apps.some(app => !isSettled(app));
    write(heading, say(isOpen ? "round.open" : "round.last"));
    const time = state.link === "known" ? now() : state.answeredAt;
    const summary = summaryOf(round, time, span);
    write(at("round-summary"), paragraph(summary.text, say("round.endedAt", { time: clock(round.endedAt, time) })));
    at("round-summary").className = summary.style;
    const rows = rowsOf(round, log.entries, time, names, span);
    const track = Math.max(120, box.clientWidth - (box.clientWidth > 620 ? 272 : 16));
    // An unchanged drawing is left alone, so that the focus and screen readers keep their place.
    const mayWaive = state.link === "known" ? waive : null;
    const key = JSON.stringify([round.session, state.isTable ? tableOf(rows, span) : [rows, track, [...state.opened]], Boolean(mayWaive)]);
    if (key === drawnRows)
        return;
    drawnRows = key;
    drawing.replace(box, state.isTable ? drawing.table(rows, time, { waive: mayWaive }) : drawing.waterfall(rows, track, state.opened, time, { toggle, waive: mayWaive }));
}

function toggle(row) {
    if (!state.opened.delete(row.key))
        state.opened.add(row.key);
    drawNow();
}

let drawnDay = "";
function drawDay() {
    const box = at("day-drawing");
    const end = Math.floor(now());
    const outages = state.link === "known" ? state.outages : [...state.outages, { from: state.answeredAt, to: end }];
    const segments = withOutages(segmentsOf(log.entries, end - 86400, end, state.hasWholeLog), outages);
    const key = JSON.stringify([segments.map(segment => [segment.state, Math.round(segment.from / 60), Math.round(segment.to / 60)]), box.clientWidth]);
    if (key === drawnDay)
        return;
    drawnDay = key;
    box.replaceChildren(drawing.day(segments, end - 86400, end, box.clientWidth));
}

function drawApps(names) {
    const { device } = state;
    const chip = (style, sign, word) => html("li", { class: `chip ${style}` }, html("span", { "aria-hidden": "true" }, `${sign} `), word);
    const items = device.apps.map(app => html("li", { class: "app-card" },
        html("p", { class: "app", title: app.identifier }, names(app.identifier)),
        html("p", { class: "dim small-text" }, drawing.appOf(app)),
        html("ul", { class: "chips" },
            app.runs ? chip("good", "●", say("app.runs")) : chip("", "○", say("app.runsNot")),
            app.holds ? chip("account", "▪", say("app.holds")) : null,
            app.owes.length ? chip("bad", "!", app.owes.length === 1 ? say("app.owes.session", { session: String(app.owes[0]) }) : say("app.owes", { count: app.owes.length })) : null),
        app.problem ? html("p", { class: "bad" }, app.problem) : null));
    const key = JSON.stringify([device.apps, items.map(item => item.textContent)]);
    fill(at("app-list"), key, ...(items.length ? items : [html("li", { class: "dim" }, say("app.none"))]));
}

// MARK: Acting

at("sign-out").addEventListener("click", () => {
    write(at("sign-out-question"), say("signOut.question", { name: state.device.account?.name ?? "–" }));
    write(at("sign-out-consequence"), consequence(state.device));
    const { epoch } = state.device;
    ask("sign-out", () => broker.signOut(epoch));
});

function waive(row) {
    write(at("waive-question"), say("waive.question", { app: row.name }));
    at("waive-reason").value = "";
    const session = state.round.session;
    ask("waive", () => broker.waive(row.identifier, row.user, session, at("waive-reason").value.trim()));
}

at("as-table").addEventListener("click", () => {
    state.isTable = !state.isTable;
    at("as-table").setAttribute("aria-pressed", String(state.isTable));
    draw();
});

at("round-choice").addEventListener("change", async () => {
    const [wanted, { rounds }] = [Number(at("round-choice").value), state.device];
    choice.choose(wanted === rounds[rounds.length - 1] ? null : wanted);
    try {
        const round = await choice.round(rounds);
        // The right to see the device may have ended during the request.
        if (state.device)
            state.round = round;
        draw();
    } catch {
        // The next response of GetStatus brings the round, or shows that the broker is gone.
    }
});

followTheme();
new ResizeObserver(draw).observe(at("waterfall"));
// Two durations grow without any event: how long the session lasts, and how long an app has owed a cleanup.
const isCalm = matchMedia("(prefers-reduced-motion: reduce)");
(function tick() {
    const isGrowing = state.link === "known" && state.round?.apps.some(app => !isSettled(app));
    draw();
    window.setTimeout(tick, isGrowing && !isCalm.matches ? 250 : 1000);
})();

window.cockpit.transport.wait(() => {
    followDevice();
    followLog();
});
