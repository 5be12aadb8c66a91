// A round of cleanup as rows on one time axis. Pure: does not draw.

import { paragraph, say } from "./texts.js";

/**
 * The signs of events. Each has a character, because paper shows no colours. The log of a device has only the first
 * seven events; a result of `shared-device check` has the others, too.
 */
export const signs = {
    told: { letter: "T", style: "told" },
    begun: { letter: "B", style: "told" },
    finished: { letter: "F", style: "good" },
    failed: { letter: "!", style: "bad" },
    waived: { letter: "W", style: "bad" },
    enforced: { letter: "E", style: "bad" },
    interrupted: { letter: "×", style: "fault" },
    signIn: { letter: "I", style: "account" },
    signOut: { letter: "O", style: "account" },
    broadcast: { letter: "A", style: "account" },
    stopped: { letter: "=", style: "fault" },
    continued: { letter: "›", style: "fault" },
    killed: { letter: "×", style: "fault" },
    started: { letter: "S", style: "life" },
    ended: { letter: "E", style: "life" },
    spoofed: { letter: "?", style: "fault" },
};

const states = {
    owed: { sign: "○", style: "waits" },
    told: { sign: "◔", style: "waits" },
    begun: { sign: "◑", style: "waits" },
    failed: { sign: "✗", style: "bad" },
    finished: { sign: "✓", style: "good" },
    waived: { sign: "W", style: "bad" },
    enforced: { sign: "E", style: "bad" },
};

export const meaningOf = kind => say(`sign.${kind}`);

/** A mark in words, with its time. */
export const saidOf = (mark, span) => say(mark.at < 0 ? "sign.before" : "sign.after", { what: meaningOf(mark.kind), time: span(Math.abs(mark.at)) });

export const isSettled = app => ["finished", "waived", "enforced"].includes(app.progress);

/**
 * The rows of a round; apps that still owe the cleanup come first.
 *
 * entries: the log's entries, of which this session's are used. now: in seconds since 1970, by the device's clock; the
 * bars of an open round end there. name: returns the name shown for an app's identifier.
 */
export function rowsOf(round, entries, now, name, span) {
    const own = entries.filter(entry => entry.session === round.session && entry.app);
    const elapsed = Math.max(0, now - round.endedAt);
    const rows = round.apps.map(app => {
        const lines = own.filter(entry => entry.app === app.identifier && (app.user === null || entry.user === null || entry.user === app.user));
        const isKnown = Object.hasOwn(states, app.progress);
        const state = isKnown ? states[app.progress] : { sign: "?", style: "waits" };
        const progress = isKnown ? say(`progress.${app.progress}`) : app.progress;
        const done = isSettled(app);
        const end = done ? app.finished ?? app.begun ?? app.told ?? 0 : elapsed;
        const marks = [];
        const mark = (kind, at) => { if (at !== null) marks.push({ kind, at }); };
        mark("told", app.told);
        mark("begun", app.begun);
        for (const line of lines)
            if (line.event === "interrupted" || line.event === "failed")
                mark(line.event, Math.max(0, line.at - round.endedAt));
        // The log's entries may not have arrived yet, or the broker may no longer keep them.
        if (app.progress !== "failed" || !marks.some(each => each.kind === "failed"))
            if (["finished", "failed", "waived", "enforced"].includes(app.progress))
                mark(app.progress, app.finished);
        const bars = [];
        const heard = app.told ?? app.begun ?? (done ? end : null);
        bars.push({ kind: "owed", from: 0, to: heard ?? end, isOpen: heard === null });
        if (heard !== null && app.begun !== null && app.begun > heard)
            bars.push({ kind: "heard", from: heard, to: app.begun, isOpen: false });
        if (heard !== null)
            bars.push({ kind: app.progress === "failed" ? "broken" : "cleaning", from: app.begun ?? heard, to: Math.max(end, app.begun ?? heard), isOpen: !done });
        const word = done && app.progress === "finished" && app.finished !== null ? say("progress.finished.after", { time: span(app.finished) })
            : !done && !app.runs ? say("progress.notRunning", { progress }) : progress;
        return {
            key: `${app.identifier} ${app.user ?? ""}`, identifier: app.identifier, user: app.user, name: name(app.identifier), done, sign: state.sign, word, style: state.style,
            bars, marks: marks.sort((one, other) => one.at - other.at), detail: app.detail, lines, app,
        };
    });
    return rows.sort((one, other) => Number(one.done) - Number(other.done) || one.name.localeCompare(other.name));
}

/**
 * The rows as a table with everything that the drawing and its opened rows show. The column “Besides” has the marks for
 * which there is no other column, such as a failure.
 */
export function tableOf(rows, span) {
    const time = value => value === null ? "–" : span(value);
    const besides = row => row.marks.filter(mark => !["told", "begun", "finished"].includes(mark.kind)).map(mark => saidOf(mark, span)).join(", ");
    return {
        heads: ["app", "user", "state", "told", "begun", "ended", "besides", "message", "log"].map(head => say(`table.${head}`)),
        cells: rows.map(row => [
            row.name, row.user === null ? "–" : String(row.user), `${row.sign} ${row.word}`, time(row.app.told), time(row.app.begun), time(row.app.finished),
            besides(row) || "–", row.detail ? (row.app.progress === "waived" ? say("reasonOfWaiver", { detail: row.detail }) : row.detail) : "–",
            row.lines.map(line => `${line.event}${line.detail ? ` ${line.detail}` : ""}`).join("; ") || "–",
        ]),
    };
}

/**
 * The axis: from the sign-out, or from an earlier event, to the last event, or to now if an app still owes the cleanup.
 * Ticks are at round numbers.
 */
export function axisOf(rows, width) {
    const times = rows.flatMap(row => [...row.bars.flatMap(bar => [bar.from ?? 0, bar.to]), ...row.marks.map(mark => mark.at)]);
    const [begin, end] = [Math.min(0, ...times) * 1.04, Math.max(0.01, ...times) * 1.04];
    const step = stepFor((end - begin) / Math.max(2, Math.floor(width / 90)));
    const ticks = [];
    for (let index = Math.ceil(begin / step); index * step <= end; index += 1)
        ticks.push(index * step);
    return { begin, end, ticks };
}

/** The next larger step for a scale in seconds: 1, 2 or 5 times a power of ten up to 30 s; then the steps of a clock. */
export function stepFor(wanted) {
    for (let power = 0.001; power <= 10; power *= 10)
        for (const factor of [1, 2, 5])
            if (factor * power >= wanted && factor * power <= 30)
                return factor * power;
    const steps = [30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];
    return steps.find(step => step >= wanted) ?? Math.ceil(wanted / 86400) * 86400;
}

/** Moves marks on a line of this length, in order: at least `gap` apart and on the line, near the wanted places. */
export function spread(wanted, gap, length) {
    const places = [];
    for (const place of wanted)
        places.push(Math.max(place, places.length ? places[places.length - 1] + gap : gap / 2));
    let limit = length - gap / 2;
    for (let index = places.length - 1; index >= 0; index -= 1) {
        places[index] = Math.min(places[index], limit);
        limit = places[index] - gap;
    }
    return places;
}

export function summaryOf(round, now, span) {
    const owing = round.apps.filter(app => !isSettled(app));
    const total = round.apps.length;
    const time = span(Math.max(0, ...round.apps.map(app => app.finished ?? 0)));
    const waived = round.apps.filter(app => app.progress === "waived").length;
    const enforced = round.apps.filter(app => app.progress === "enforced").length;
    if (total === 0)
        return { style: "good", text: `✓ ${say("summary.none")}` };
    if (owing.length === 0 && waived)
        return { style: "bad", text: `W ${say("summary.waived", { time, count: waived, total })}` };
    if (owing.length === 0 && enforced)
        return { style: "bad", text: `E ${say("summary.enforced", { time, count: enforced, total })}` };
    if (owing.length === 0)
        return { style: "good", text: `✓ ${say("summary.clean", { time })}` };
    const failed = owing.filter(app => app.progress === "failed").length;
    const isExpired = round.outcome === "expired";
    const words = paragraph(say("summary.owing", { count: owing.length, total, time: span(Math.max(0, now - round.endedAt)) }),
        failed && say("summary.failed", { count: failed }), isExpired && say("summary.expired"));
    return { style: failed || isExpired ? "bad" : "waits", text: `${failed ? "✗" : "◑"} ${words}` };
}
