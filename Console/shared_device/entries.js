// Keeps and filters the log's entries, and selects the rows in view. Pure.

import { say } from "./texts.js";

/** The number of entries that the page keeps. It drops the oldest ones first. */
export const most = 10000;

/** Merges two lists by sequence number, each entry once. */
export function merged(known, news) {
    if (!news.length)
        return known;
    const last = known.length ? known[known.length - 1].sequence : -1;
    if (news[0].sequence > last)
        return known.concat(news).slice(-most);
    const all = new Map([...news, ...known].map(entry => [entry.sequence, entry]));
    return [...all.values()].sort((one, other) => one.sequence - other.sequence).slice(-most);
}

export const sessionOf = session => session === null ? "" : say("session.number", { session: String(session) });

/** The entries that match, newest first. An empty criterion matches every entry. */
export function filtered(entries, { text, event, app }) {
    const words = text.trim().toLowerCase();
    const fits = entry => (!event || entry.event === event) && (!app || entry.app === app) &&
        (!words || `${entry.event} ${entry.app} ${entry.detail} ${sessionOf(entry.session)}`.toLowerCase().includes(words));
    const found = [];
    for (let index = entries.length - 1; index >= 0; index -= 1)
        if (fits(entries[index]))
            found.push(entries[index]);
    return found;
}

/** The range of rows to draw: the rows in view and eight more on each side. */
export function visible(count, rowHeight, top, height) {
    const beyond = 8;
    const first = Math.max(0, Math.floor(top / rowHeight) - beyond);
    return { first: Math.min(first, count), end: Math.min(count, Math.ceil((top + height) / rowHeight) + beyond) };
}

export const style = event => ({
    failed: "bad", refused: "bad", expired: "waits", interrupted: "waits", waived: "bad", enforced: "bad", "not-enforced": "bad", completed: "good", finished: "good", "signed-in": "account", "signed-out": "account",
})[event] ?? "";
