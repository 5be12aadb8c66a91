// The log's entries: kept, filtered, and the part of them that is on the screen. Pure.

/** As many as the page keeps; the oldest go first. */
export const most = 10000;

/** Both lists in their order, each entry once. */
export function merged(known, news) {
    if (!news.length)
        return known;
    const last = known.length ? known[known.length - 1].sequence : -1;
    if (news[0].sequence > last)
        return known.concat(news).slice(-most);
    const all = new Map([...news, ...known].map(entry => [entry.sequence, entry]));
    return [...all.values()].sort((one, other) => one.sequence - other.sequence).slice(-most);
}

/** Those that fit, newest first. An empty criterion fits all. */
export function filtered(entries, { text, event, app }) {
    const words = text.trim().toLowerCase();
    const fits = entry => (!event || entry.event === event) && (!app || entry.app === app) &&
        (!words || `${entry.event} ${entry.app} ${entry.detail} session ${entry.session ?? ""}`.toLowerCase().includes(words));
    const found = [];
    for (let index = entries.length - 1; index >= 0; index -= 1)
        if (fits(entries[index]))
            found.push(entries[index]);
    return found;
}

/** Which rows are drawn: those in view, and a few beyond on both sides. */
export function visible(count, rowHeight, top, height) {
    const beyond = 8;
    const first = Math.max(0, Math.floor(top / rowHeight) - beyond);
    return { first: Math.min(first, count), end: Math.min(count, Math.ceil((top + height) / rowHeight) + beyond) };
}

export const style = event => ({
    failed: "bad", refused: "bad", expired: "waits", interrupted: "waits", waived: "bad", enforced: "bad", "not-enforced": "bad", completed: "good", finished: "good", "signed-in": "account", "signed-out": "account",
})[event] ?? "";
