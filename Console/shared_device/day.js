// The last 24 hours as a sequence of states. Pure.

import { moment } from "./texts.js";

export const dayStates = ["signed-in", "cleaning", "nobody", "unknown"];

/**
 * The states between `from` and `now`, in seconds since 1970, without gaps.
 *
 * entries: entries of the log, oldest first. isWhole: whether they begin with the log's first entry. Before that entry
 * there was no shared device.
 */
export function segmentsOf(entries, from, now, isWhole) {
    let session = null;
    let isKnown = false;
    const open = new Set();
    const changes = [];
    for (const entry of entries) {
        const before = stateOf(session, open, isKnown);
        isKnown ||= isWhole;
        if (entry.event === "signed-in") {
            session = entry.session;
            isKnown = true;
        } else if (entry.event === "signed-out") {
            // A sign-out without its sign-in: the session began before the first of these entries.
            if (!isKnown)
                changes.push({ at: -Infinity, state: "signed-in" });
            session = null;
            isKnown = true;
            open.add(entry.session);
        } else if (entry.event === "completed" || entry.event === "expired") {
            open.delete(entry.session);
        }
        const state = stateOf(session, open, isKnown);
        if (state !== before)
            changes.push({ at: entry.at, state });
    }
    const segments = [];
    const add = (state, start, end) => {
        const [first, last] = [Math.max(from, start), Math.min(now, end)];
        if (last <= first)
            return;
        const previous = segments[segments.length - 1];
        if (previous && previous.state === state)
            previous.to = last;
        else
            segments.push({ state, from: first, to: last });
    };
    let [state, since] = ["unknown", -Infinity];
    for (const change of changes) {
        add(state, since, change.at);
        [state, since] = [change.state, change.at];
    }
    add(state, since, now);
    return segments;
}

function stateOf(session, open, isKnown) {
    if (!isKnown)
        return "unknown";
    return session !== null ? "signed-in" : open.size ? "cleaning" : "nobody";
}

/** Replaces the states during outages, in which no response came, with `unknown`. */
export function withOutages(segments, outages) {
    let result = segments;
    for (const outage of outages) {
        result = result.flatMap(segment => {
            if (segment.to <= outage.from || segment.from >= outage.to)
                return [segment];
            return [
                { ...segment, to: outage.from },
                { state: "unknown", from: Math.max(segment.from, outage.from), to: Math.min(segment.to, outage.to) },
                { ...segment, from: outage.to },
            ].filter(part => part.to > part.from);
        });
    }
    return result;
}

/** Full hours of the local clock between both times, at most about `wanted` of them. */
export function hoursOf(from, now, wanted) {
    const step = [1, 2, 3, 4, 6, 12].find(hours => 24 / hours <= wanted) ?? 24;
    const hours = [];
    const date = new Date(from * 1000);
    date.setMinutes(0, 0, 0);
    for (let hour = 0; hour < 26; hour += 1) {
        date.setHours(date.getHours() + 1);
        const time = date.getTime() / 1000;
        if (time > from && time < now && date.getHours() % step === 0)
            hours.push({ time, label: moment(time, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }) });
    }
    return hours;
}
