// The script of the page that `shared-device check --html` writes: draws each sign-out with the console's modules.

import { followTheme, html } from "../shared_device/dom.js";
import { picture, waterfall } from "../shared_device/drawing.js";
import { meaningOf, signs } from "../shared_device/rounds.js";
import { span } from "../shared_device/words.js";

const receipts = ["told", "begun", "failed", "finished", "waived", "enforced"];
const others = ["device", "broker", "bus"];

/**
 * The rows of a sign-out: one for each app, the device, the broker and the bus. Times of a result are in milliseconds.
 * names: the names shown for the rows.
 */
export function reportRows(round, names) {
    const times = kinds => round.events.filter(event => kinds.includes(event.kind)).map(event => event.milliseconds);
    const last = Math.max(0, ...times(receipts));
    const isClean = round.apps.every(app => app.isClean);
    // The drawing begins with the steps right before the sign-out. It ends with the last receipt, or with the check if
    // an app sent no receipt.
    const end = Math.max(1, isClean ? last || round.observed : Math.max(round.observed, last));
    const begin = Math.min(0, ...times(["stopped", "killed"]).filter(time => time > -0.25 * end));
    const seconds = time => Math.min(end, Math.max(begin, time)) / 1000;
    const shown = round.events.filter(event => event.milliseconds >= begin && event.milliseconds <= end);
    const rowOf = (lane, app) => {
        const events = shown.filter(event => event.lane === lane);
        const done = !app || app.isClean;
        const bars = app ? barsOf(app, end) : [];
        for (const away of absencesOf(round.events.filter(event => event.lane === lane), begin, end))
            bars.push({ kind: "away", ...away, isOpen: away.to === end && !done });
        return {
            key: lane, identifier: lane, user: null, name: names[lane] ?? lane, done, detail: "",
            sign: !app ? "" : done ? "✓" : "✗", style: !app ? "dim" : done ? "good" : "bad",
            word: !app ? "" : !done ? `not clean: ${app.summary}` : app.cleanedAfter === undefined ? app.summary : `clean after ${span(app.cleanedAfter / 1000)}`,
            bars: bars.map(bar => ({ ...bar, from: seconds(bar.from), to: seconds(bar.to) })),
            marks: events.filter(event => Object.hasOwn(signs, event.kind)).map(event => ({ kind: event.kind, at: event.milliseconds / 1000 })),
            lines: events.map(event => ({ when: `${event.milliseconds < 0 ? "−" : "+"}${span(Math.abs(event.milliseconds) / 1000)}`, event: Object.hasOwn(signs, event.kind) ? meaningOf(event.kind) : event.kind, detail: event.text })),
            app: { progress: done ? "finished" : "owed", told: inSeconds(app?.heardAfter), begun: inSeconds(app?.begunAfter), finished: inSeconds(app?.cleanedAfter) },
        };
    };
    return [...others.filter(lane => shown.some(event => event.lane === lane)).map(lane => rowOf(lane, null)), ...round.apps.map(app => rowOf(app.identifier, app))];
}

const inSeconds = time => time === undefined || time === null ? null : time / 1000;

function barsOf(app, end) {
    const heard = app.heardAfter ?? null;
    if (heard === null)
        return app.isClean ? [] : [{ kind: "owed", from: 0, to: end, isOpen: true }];
    const begun = app.begunAfter ?? heard;
    const bars = [{ kind: "owed", from: 0, to: heard, isOpen: false }];
    if (begun > heard)
        bars.push({ kind: "heard", from: heard, to: begun, isOpen: false });
    return [...bars, { kind: "cleaning", from: begun, to: app.isClean ? app.cleanedAfter ?? end : end, isOpen: !app.isClean }];
}

/** The spans in which a process was stopped, or not running after its end. */
function absencesOf(events, begin, end) {
    const found = [];
    let since = null;
    for (const event of events) {
        if (["stopped", "killed", "ended"].includes(event.kind)) {
            since ??= event.milliseconds;
        } else if (["continued", "started"].includes(event.kind)) {
            if (since !== null && event.milliseconds > begin)
                found.push({ from: since, to: event.milliseconds });
            since = null;
        }
    }
    if (since !== null)
        found.push({ from: since, to: end });
    return found.filter(each => each.from < end);
}

/** Draws each round into its element of the page, and redraws it when the width or a choice changes. */
export function drawReport(result) {
    followTheme();
    for (const [number, round] of result.rounds.entries()) {
        const box = document.querySelector(`[data-round="${number}"]`);
        const rows = reportRows(round, result.names);
        const opened = new Set();
        const draw = () => {
            const focused = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
            const toggle = row => {
                if (!opened.delete(row.key))
                    opened.add(row.key);
                draw();
            };
            const track = Math.max(120, box.clientWidth - (box.clientWidth > 620 ? 272 : 16));
            const save = html("button", { type: "button", class: "small", "data-key": "save", click: () => savePicture(rows, round) }, "Save as a picture");
            box.replaceChildren(waterfall(rows, track, opened, 0, { toggle, waive: null, name: `round-${number}`, noLines: "The check has seen no event here." }), save);
            if (focused)
                [...box.querySelectorAll("button")].find(button => button.dataset.key === focused)?.focus();
        };
        new ResizeObserver(draw).observe(box);
    }
}


function savePicture(rows, round) {
    const drawn = picture(rows, 820, document.documentElement.dataset.theme, `Timeline of the sign-out of ${round.user}`);
    const link = html("a", { download: `sign-out-${round.session}.svg`, href: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(drawn))}` });
    link.click();
}
