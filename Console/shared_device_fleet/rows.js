// The fleet's devices as rows, and an order's progress as a bar. Pure: does not draw.

import { clock, count, span } from "../shared_device/words.js";

/** The states, worst first. `none`: no order includes the device. */
export const states = {
    unknown: { sign: "?", style: "bad", meaning: "has never reported" },
    refused: { sign: "✗", style: "bad", meaning: "does not carry out the order" },
    unreachable: { sign: "⌁", style: "bad", meaning: "no report that counts" },
    stuck: { sign: "!", style: "bad", meaning: "apps owe for over a minute, or have failed" },
    cleaning: { sign: "◑", style: "waits", meaning: "signed out, apps owe" },
    nobody: { sign: "○", style: "good", meaning: "no account was signed in" },
    clean: { sign: "✓", style: "good", meaning: "signed out, all data deleted" },
    none: { sign: "–", style: "dim", meaning: "no order includes the device" },
};

const order = Object.keys(states);
export const stateOf = row => Object.hasOwn(states, row.state) ? row.state : row.state ? "unknown" : "none";
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
        notes.push(`owes: ${row.owing.join(", ")}${more ? `, ${more} more` : ""}`);
    }
    if (row.state === "unreachable" && row.since !== null)
        notes.push(`last report ${clock(row.since, now)}`);
    if (row.signsOutBy !== null)
        notes.push(`if it runs, its session ends by itself by ${clock(row.signsOutBy, now)}`);
    if (row.detail)
        notes.push(row.detail);
    if (!row.isListed)
        notes.push("not in the list");
    if (row.clockOffset !== null)
        notes.push(`its clock is off by ${span(Math.abs(row.clockOffset))}`);
    return [...notes, ...row.problems].join("; ");
}

/** How long the device's certificate is still valid, by its last report. */
export function termOf(row, now) {
    if (row.certificateEnd === null)
        return "";
    const days = Math.floor((row.certificateEnd - now) / 86400);
    return days < 0 ? "has ended" : days === 0 ? "ends within a day" : `ends in ${count(days, "day")}`;
}

export const networkOf = row => row.isOnline === null ? "unknown" : row.isOnline ? "online" : "away";
/** The session on the device. If the device is not known to be online, the value is that of its last report. */
export function signedInOf(row) {
    if (!row.mode)
        return "–";
    // The device's broker does not respond.
    if (row.mode === "unknown")
        return "unknown";
    return (row.session === null ? "no account" : `session ${row.session}`) + (row.isOnline === true ? "" : " at the last report");
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
        return { style: "waits", text: "No device of the order is in the list: there is nothing to wait for." };
    const done = progress.total - progress.undone;
    const apps = (number, what) => number ? ` ${count(number, "app")} ${number === 1 ? "was" : "were"} ${what}.` : "";
    const without = apps(progress.waived, "waived on the devices") + apps(progress.enforced ?? 0, "stopped by the devices, and the data deleted in their place");
    return progress.undone === 0 ? { style: "good", text: `✓ All ${count(progress.total, "device")} have done it.${without}` }
        : { style: "waits", text: `◑ ${done} of ${count(progress.total, "device")} have done it, ${progress.undone} ${progress.undone === 1 ? "has" : "have"} not.${without}` };
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
