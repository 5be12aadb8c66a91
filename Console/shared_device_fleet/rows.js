// The fleet's devices as rows, and an order's progress as a bar. Pure: does not draw.

import { sessionOf } from "../shared_device/entries.js";
import { listed, paragraph, say } from "../shared_device/texts.js";
import { clock, remaining, span } from "../shared_device/words.js";

/** The states, worst first. `none`: no order includes the device. */
export const states = {
    unknown: { sign: "?", style: "bad" },
    refused: { sign: "✗", style: "bad" },
    unreachable: { sign: "⌁", style: "bad" },
    stuck: { sign: "!", style: "bad" },
    cleaning: { sign: "◑", style: "waits" },
    nobody: { sign: "○", style: "good" },
    clean: { sign: "✓", style: "good" },
    none: { sign: "–", style: "dim" },
};

const order = Object.keys(states);
export const stateOf = row => Object.hasOwn(states, row.state) ? row.state : row.state ? "unknown" : "none";
/** The state in a word. A state that this page does not know is shown as received. */
export const nameOf = row => Object.hasOwn(states, row.state) || !row.state ? say(`state.${stateOf(row)}`) : row.state;
export const meaningOf = state => say(`state.${state}.meaning`);
export const isDone = row => row.state === "clean" || row.state === "nobody";

/** The rows that match, worst first. An empty criterion matches every row. */
export function found(rows, { text, state }) {
    const words = text.trim().toLowerCase();
    const fits = row => (!state || stateOf(row) === state)
        && (!words || `${row.name} ${row.groups.join(" ")} ${row.owing.join(" ")} ${row.detail} ${row.problems.join(" ")}`.toLowerCase().includes(words));
    const rank = new Map(order.map((name, index) => [name, index]));
    return rows.filter(fits).map(row => [rank.get(stateOf(row)), row])
        .sort((one, other) => one[0] - other[0] || (one[1].name < other[1].name ? -1 : 1)).map(([, row]) => row);
}

/** Notes on a device besides its state. */
export function noteOf(row, now) {
    const notes = [];
    if (row.owing.length) {
        const more = Math.max(0, (row.owes ?? 0) - row.owing.length);
        notes.push(say("note.owes", { apps: listed(more ? [...row.owing, say("note.more", { count: more })] : row.owing) }));
    }
    if (row.state === "unreachable" && row.since !== null)
        notes.push(say("note.since", { time: clock(row.since, now) }));
    if (row.signsOutBy !== null)
        notes.push(say("note.signsOutBy", { time: clock(row.signsOutBy, now) }));
    if (row.detail)
        notes.push(row.detail);
    if (!row.isListed)
        notes.push(say("note.unlisted"));
    if (row.clockOffset !== null)
        notes.push(say("note.clock", { time: span(Math.abs(row.clockOffset)) }));
    return [...notes, ...row.problems].join("; ");
}

/** How long the device's certificate is still valid, by its last report. */
export function termOf(row, now) {
    return row.certificateEnd === null ? "" : remaining(row.certificateEnd, now);
}

export const reportOf = (row, now) => row.reportedAt === null ? say("report.never") : clock(row.reportedAt, now);
export const networkOf = row => say(row.isOnline === null ? "network.unknown" : row.isOnline ? "network.online" : "network.away");
/** The session on the device. If the device is not known to be online, the value is that of its last report. */
export function signedInOf(row) {
    if (!row.mode)
        return "–";
    // The device's broker does not respond.
    if (row.mode === "unknown")
        return say("session.unknown");
    const what = row.session === null ? say("session.none") : sessionOf(row.session);
    return row.isOnline === true ? what : say("session.atLastReport", { what });
}

/** An order's states as parts of the bar, best first. */
export function partsOf({ counts, total }) {
    let from = 0;
    return [...order].reverse().filter(state => counts[state] > 0).map(state => {
        const part = { state, count: counts[state], from: from / Math.max(1, total), to: (from + counts[state]) / Math.max(1, total) };
        from += counts[state];
        return part;
    });
}

export function sentenceOf(progress) {
    if (progress.total === 0)
        return { style: "waits", text: say("order.empty") };
    const { total, undone, waived, enforced } = progress;
    const words = paragraph(undone === 0 ? say("order.done", { count: total }) : say("order.undone", { done: total - undone, total, count: undone }),
        waived && say("order.waived", { count: waived }), enforced && say("order.enforced", { count: enforced }));
    return undone === 0 ? { style: "good", text: `✓ ${words}` } : { style: "waits", text: `◑ ${words}` };
}

/** A copy of the rows in which the changed devices replace their old rows. */
export function updated(rows, news) {
    const all = new Map(rows);
    for (const row of news)
        all.set(row.name, row);
    return all;
}

export const stuckOf = rows => [...rows.values()].filter(row => row.state === "stuck").length;

/** The fields of a row that an order's progress also has. */
export const standingOf = ({ state, owing, owes, since, signsOutBy, detail }) => ({ state, owing, owes, since, signsOutBy, detail });

/**
 * Applies an order's progress to the rows of devices that have not carried it out, because their state may have changed
 * by time alone.
 */
export function restated(rows, undone) {
    for (const one of undone) {
        const row = rows.get(one.name);
        if (row && row.state !== one.state)
            rows.set(one.name, { ...row, ...standingOf(one) });
    }
    return rows;
}
