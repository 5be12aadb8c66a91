// The page of a fleet: follows the controller's state and draws it.

import { problemOf } from "../shared_device/answers.js";
import { at, fill, followTheme, html, offer, svg, write } from "../shared_device/dom.js";
import * as drawing from "../shared_device/drawing.js";
import { loadTexts } from "../shared_device/language.js";
import { isSettled, rowsOf, summaryOf, tableOf } from "../shared_device/rounds.js";
import { paragraph, say } from "../shared_device/texts.js";
import { clock, namesOf, span } from "../shared_device/words.js";
import { Controller, deviceOf, ordersOf, pageOf, progressOf } from "./controller.js";
import { DeviceList } from "./devicelist.js";
import { meaningOf, nameOf, networkOf, noteOf, partsOf, reportOf, restated, sentenceOf, signedInOf, standingOf, stateOf, states, stuckOf, termOf, updated } from "./rows.js";

await loadTexts();

const controller = new Controller();
const state = {
    /** `asking`, `known`, `gone`, `busy`, `denied`. */
    link: "asking",
    /** The controller's clock minus this browser's, in seconds; and the controller's time of the last response. */
    skew: 0, answeredAt: null,
    rows: new Map(), about: null, orders: [], progress: null, chosen: null,
    /** The device that is open, and whether the last request about it failed. */
    opened: null, isStale: false, session: null, openRows: new Set(), isTable: false,
};
const now = () => Date.now() / 1000 + state.skew;
const list = new DeviceList(now, name => openDevice(name, true));

// MARK: Following

/** The least time between two requests, in seconds. A fleet that is cleaning up changes all the time. */
const rest = 0.5;

/**
 * The least time, in seconds, between two requests for all devices. Such a request is needed when devices became late,
 * which happens without an event.
 */
const lateness = 20;

/**
 * The number of abandoned requests: the user chose another order while they waited. The controller keeps them open until
 * something changes, and allows each caller only a few. Until all have their responses, further requests do not wait.
 */
let left = 0;

async function follow() {
    let [revision, about, highest, wholeAt] = [null, "", null, 0];
    for (;;) {
        try {
            const [owners, chosen] = [controller.owners, state.chosen];
            // Renewed each time, because a promise keeps every response that was ever raced with it.
            wish.renew();
            if (about !== `${owners} ${chosen}`)
                revision = null;
            const orders = revision === null ? ordersOf(await controller.orders()) : state.orders;
            const order = chosen ?? orders[0]?.number ?? null;
            // If the last request about the open device failed, this request does not wait for a change, so that the
            // page soon asks about the device again.
            const asked = pages(revision, order, !state.isStale && left === 0);
            // An abandoned request may fail later, which must not count as an unhandled rejection.
            asked.catch(() => {});
            const answer = await Promise.race([asked, wish.promise]);
            if (!answer) {
                left += 1;
                asked.catch(() => {}).finally(() => { left -= 1; });
            }
            const news = !answer || answer.first.highest === highest ? orders : ordersOf(await controller.orders());
            highest = answer?.first.highest ?? highest;
            // During the request the user chose another order, the controller restarted, or a new order was given.
            if (!answer || state.chosen !== chosen || controller.owners !== owners || chosen === null && (news[0]?.number ?? null) !== order) {
                about = "";
                continue;
            }
            const { first, rows } = answer;
            const progress = order === null ? null : progressOf(await controller.order(order));
            [revision, about] = [first.revision, `${owners} ${chosen}`];
            state.skew = first.time - Date.now() / 1000;
            announce(state.link === "known" ? state.progress : null, progress);
            state.rows = restated(first.isWhole ? new Map(rows.map(row => [row.name, row])) : updated(state.rows, rows), progress?.rows ?? []);
            Object.assign(state, { link: "known", answeredAt: first.time, about: first, orders: news, progress });
            if (state.opened && first.isWhole && !state.rows.has(state.opened.name))
                // The device was removed from the list.
                Object.assign(state, { opened: null, isStale: false });
            if (state.opened && (state.isStale || first.isWhole || rows.some(row => row.name === state.opened.name)))
                await openDevice(state.opened.name, false);
            // An app that owes a cleanup becomes late by time alone, without a change of the device. The response about
            // the order counts all devices, but names only the worst.
            const row = state.opened && state.rows.get(state.opened.name);
            if (row && row.state !== state.opened.state)
                state.opened = { ...state.opened, ...standingOf(row) };
            if (first.isWhole)
                wholeAt = performance.now() / 1000;
            else if (progress && (progress.counts.stuck ?? 0) !== stuckOf(state.rows) && performance.now() / 1000 - wholeAt > lateness)
                revision = null;
            draw();
            await controller.pause(state.isStale ? 1 : rest);
        } catch (error) {
            about = "";
            const link = problemOf(error);
            if (link !== state.link)
                write(at("announcement"), say(link === "denied" ? "fleet.denied" : link === "busy" ? "tooOften" : "controller.unknown"));
            state.link = link;
            // The right to see the fleet has ended, so the page removes everything that it showed.
            if (link === "denied")
                Object.assign(state, { rows: new Map(), about: null, orders: [], progress: null, opened: null, isStale: false });
            draw();
            await controller.pause(link === "denied" ? 30 : 1);
        }
    }
}

/** A promise that makes `follow` abandon a request that waits for a change. */
const wish = {
    renew() {
        this.promise = new Promise(resolve => { this.fulfil = () => resolve(null); });
    },
};
wish.renew();

/** Fetches all pages of devices. `first`, the first page, also has the controller's own state. */
async function pages(changedAfter, order, waits) {
    const first = pageOf(await controller.devices({ changedAfter, order, waits: waits && changedAfter !== null }));
    const rows = [...first.devices];
    let page = first;
    while (page.hasMore && page.devices.length) {
        page = pageOf(await controller.devices({ changedAfter: first.isWhole ? null : changedAfter, order, after: rows[rows.length - 1].name }));
        rows.push(...page.devices);
    }
    return { first, rows };
}

/** Announces a new order and its end to screen readers, in one sentence. */
function announce(before, progress) {
    if (progress && (before?.number !== progress.number || before.undone > 0 && progress.undone === 0))
        write(at("announcement"), say("announce.order", { order: String(progress.number), sentence: sentenceOf(progress).text.replace(/^[✓◑] /, "") }));
}

async function openDevice(name, isAsked) {
    try {
        const device = deviceOf(await controller.device(name, state.progress?.number ?? null));
        const isOther = state.opened?.name !== device.name;
        if (isOther && !isAsked)
            return;
        Object.assign(state, { opened: device, isStale: false });
        if (isOther) {
            state.session = null;
            state.openRows = new Set();
        }
    } catch {
        // Either the device was removed from the list or the controller is gone; the next response tells which. The
        // shown data stays, marked as outdated.
        if (state.opened?.name === name)
            state.isStale = true;
    }
    if (!isAsked)
        return;
    drawNow();
    if (state.opened?.name === name)
        at("device-heading").focus();
}

// MARK: Drawing

let isDue = false;
function draw() {
    if (isDue)
        return;
    isDue = true;
    requestAnimationFrame(() => {
        isDue = false;
        drawNow();
    });
}

let listed = null;
function drawNow() {
    document.body.dataset.link = state.link === "busy" ? "gone" : state.link;
    document.body.dataset.has = state.about ? "device" : "nothing";
    drawNotice();
    drawOrder();
    if (listed !== state.rows) {
        listed = state.rows;
        list.show(state.rows);
    }
    drawDevice();
}

function drawNotice() {
    const notice = at("notice");
    const { link, answeredAt, about } = state;
    const problems = link !== "known" ? [] : [about.isConnected ? "" : say("controller.alone"), about.problem,
        about.refusal && say("controller.refusal", { refusal: about.refusal }), about.warning].filter(Boolean);
    notice.hidden = link === "asking" || link === "known" && !problems.length;
    const time = answeredAt ? say("lastResponse", { time: clock(answeredAt, now()) }) : say("noResponseYet");
    if (link === "gone" || link === "busy") {
        const words = link === "busy" ? [html("strong", {}, say("controller.busy")), ` ${paragraph(say("tooOften"), time)}`] : [html("strong", {}, say("controller.gone")), ` ${time}`];
        fill(notice, `${link} ${time}`, ...words);
    } else if (link === "denied") {
        fill(notice, "denied", html("strong", {}, say("fleet.denied")), ` ${say("fleet.denied.remedy")} `,
            html("button", { type: "button", click: () => controller.reconnect() }, say("askAgain")));
    } else {
        fill(notice, problems.join(" "), ...problems.map(problem => html("p", {}, `⚠ ${problem}`)));
    }
}

function drawOrder() {
    const { link, about, progress, orders } = state;
    const isKnown = link === "known";
    write(at("order-heading"), link === "asking" ? say("controller.asking") : !about ? say("unknown") : progress ? say(isKnown ? "order.heading" : "order.heading.old", { order: String(progress.number) }) : say("order.none"));
    offer(at("order-choice"), orders.length ? orders.map(order => [String(order.number), say(order.isForAll ? "order.ofAll" : "order.ofSome", { order: String(order.number), count: order.devices })]) : [["", say("noneYet")]]);
    at("order-choice").disabled = !isKnown || !orders.length;
    if (progress && at("order-choice").value !== String(progress.number))
        at("order-choice").value = String(progress.number);
    write(at("controller"), about ? paragraph(say("devices.listed", { count: about.listed }), about.unlisted && say("devices.unlisted", { count: about.unlisted })) : "");
    if (!progress) {
        write(at("order-words"), about ? say("order.how") : "");
        return fill(at("order-drawing"), "");
    }
    const sentence = sentenceOf(progress);
    const given = { time: progress.at === null ? "" : clock(progress.at, now()), reason: progress.reason };
    write(at("order-words"), paragraph(sentence.text, given.time && say(given.reason ? "order.given.reason" : "order.given", given)));
    at("order-words").className = sentence.style;
    const parts = partsOf(progress);
    fill(at("order-drawing"), JSON.stringify(parts), bar(parts), legend(parts));
}

const percent = value => `${(100 * value).toFixed(3)}%`;

const partOf = part => say("order.part", { count: part.count, state: nameOf(part), meaning: meaningOf(part.state) });

function bar(parts) {
    const words = parts.map(partOf).join("; ");
    return svg("svg", { class: "progress", width: "100%", height: 26, role: "img", "aria-label": say("order.label", { states: words }) },
        ...parts.map(part => svg("rect", { class: `part ${part.state}`, x: percent(part.from), width: percent(part.to - part.from), y: 2, height: 22 }, svg("title", {}, partOf(part)))));
}

function legend(parts) {
    return html("ul", { class: "legend" }, ...parts.map(part => html("li", {},
        svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, svg("rect", { class: `part ${part.state}`, x: 1, y: 1, width: 20, height: 10 })),
        html("span", { "aria-hidden": "true" }, states[part.state].sign), partOf(part))));
}

let drawnRounds = "";
function drawDevice() {
    const device = state.opened;
    at("device").hidden = !device;
    if (!device)
        return;
    const time = state.link === "known" ? now() : state.answeredAt;
    at("device").dataset.link = state.isStale ? "gone" : "known";
    write(at("device-heading"), device.name);
    const standing = states[stateOf(device)];
    const facts = [["state", `${standing.sign} ${say("state.withMeaning", { state: nameOf(device), meaning: meaningOf(stateOf(device)) })}`], ["signedIn", signedInOf(device)], ["network", networkOf(device)],
        ["lastReport", reportOf(device, time)], ["groups", device.groups.join(" ")], ["certificate", termOf(device, time)], ["notes", noteOf(device, time)],
        ["response", state.isStale ? say("device.stale") : ""]].filter(([, value]) => value);
    fill(at("device-facts"), JSON.stringify(facts), ...facts.map(([name, value]) => html("div", {}, html("dt", {}, say(`fact.${name}`)), html("dd", {}, value))));
    const latest = device.rounds[device.rounds.length - 1];
    offer(at("round-choice"), device.rounds.length ? [...device.rounds].reverse().map(round => [String(round.session), round === latest ? say("round.latest", { session: String(round.session) }) : String(round.session)]) : [["", say("noneYet")]]);
    const round = device.rounds.find(each => each.session === state.session) ?? latest;
    at("round-choice").disabled = at("as-table").disabled = !round;
    const box = at("waterfall");
    if (!round) {
        write(at("round-summary"), say("device.noRound"));
        drawnRounds = "";
        return box.replaceChildren();
    }
    at("round-choice").value = String(round.session);
    drawRound(round, time, box);
}

function drawRound(round, time, box) {
    // Without the time of the sign-out it is unknown how long an app has owed its cleanup.
    const end = round.hasTime ? time : round.endedAt;
    const summary = round.apps.length ? summaryOf(round, end, span) : round.outcome === "complete" ? { style: "good", text: `✓ ${say("summary.allDone")}` } : { style: "waits", text: `◑ ${say("summary.appsOwe")}` };
    write(at("round-summary"), paragraph(summary.text, round.hasTime && say("round.endedAt", { time: clock(round.endedAt, time) }), round.more && say("round.more", { count: round.more })));
    at("round-summary").className = summary.style;
    const rows = rowsOf(round, [], end, namesOf(round.apps.map(app => app.identifier)), span);
    const track = Math.max(120, box.clientWidth - (box.clientWidth > 620 ? 272 : 16));
    const key = JSON.stringify([state.opened.name, round.session, state.isTable ? tableOf(rows, span) : [rows, track, [...state.openRows]]]);
    if (key === drawnRounds)
        return;
    drawnRounds = key;
    const noLines = say("device.noLines");
    drawing.replace(box, state.isTable ? drawing.table(rows, time, { waive: null, noLines }) : drawing.waterfall(rows, track, state.openRows, time, { toggle, waive: null, noLines }));
}

function toggle(row) {
    if (!state.openRows.delete(row.key))
        state.openRows.add(row.key);
    drawNow();
}

// MARK: Acting

function close() {
    Object.assign(state, { opened: null, isStale: false });
    drawNow();
    list.focus();
}

at("close").addEventListener("click", close);
at("device").addEventListener("keydown", event => { if (event.key === "Escape") close(); });
at("as-table").addEventListener("click", () => {
    state.isTable = !state.isTable;
    at("as-table").setAttribute("aria-pressed", String(state.isTable));
    draw();
});
at("round-choice").addEventListener("change", () => {
    state.session = Number(at("round-choice").value);
    draw();
});
at("order-choice").addEventListener("change", () => {
    const number = Number(at("order-choice").value);
    state.chosen = number === state.orders[0]?.number ? null : number;
    wish.fulfil();
    controller.wake();
});

followTheme();
new ResizeObserver(draw).observe(at("waterfall"));
// The time for which an app owes its cleanup grows without any event.
const isCalm = matchMedia("(prefers-reduced-motion: reduce)");
(function tick() {
    const isGrowing = state.link === "known" && state.opened?.rounds.some(round => round.apps.some(app => !isSettled(app)));
    draw();
    window.setTimeout(tick, isGrowing && !isCalm.matches ? 250 : 1000);
})();

window.cockpit.transport.wait(follow);
