// A round of cleanup as rows on one time axis. Pure: does not draw.

/**
 * The signs of events. Each has a character, because paper shows no colours. The log of a device has only the first
 * seven events; a result of `shared-device check` has the others, too.
 */
export const signs = {
    told: { letter: "T", style: "told", meaning: "asks and is told" },
    begun: { letter: "B", style: "told", meaning: "begins to clean up" },
    finished: { letter: "F", style: "good", meaning: "reports: clean" },
    failed: { letter: "!", style: "bad", meaning: "could not clean up" },
    waived: { letter: "W", style: "bad", meaning: "waived" },
    enforced: { letter: "E", style: "bad", meaning: "enforced" },
    interrupted: { letter: "×", style: "fault", meaning: "ended before it was done" },
    signIn: { letter: "I", style: "account", meaning: "sign-in" },
    signOut: { letter: "O", style: "account", meaning: "sign-out" },
    broadcast: { letter: "A", style: "account", meaning: "broadcast: all apps ask" },
    stopped: { letter: "=", style: "fault", meaning: "stopped" },
    continued: { letter: "›", style: "fault", meaning: "goes on" },
    killed: { letter: "×", style: "fault", meaning: "killed" },
    started: { letter: "S", style: "life", meaning: "starts" },
    ended: { letter: "E", style: "life", meaning: "ends" },
    spoofed: { letter: "?", style: "fault", meaning: "spoofed broadcast" },
};

const states = {
    owed: { sign: "○", word: "has not heard of it", style: "waits" },
    told: { sign: "◔", word: "was told", style: "waits" },
    begun: { sign: "◑", word: "cleans up", style: "waits" },
    failed: { sign: "✗", word: "failed", style: "bad" },
    finished: { sign: "✓", word: "clean", style: "good" },
    waived: { sign: "W", word: "waived", style: "bad" },
    enforced: { sign: "E", word: "stopped, and its data deleted in its place", style: "bad" },
};

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
        const state = Object.hasOwn(states, app.progress) ? states[app.progress] : { sign: "?", word: app.progress, style: "waits" };
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
        const word = done && app.progress === "finished" && app.finished !== null ? `${state.word} after ${span(app.finished)}`
            : !done && !app.runs ? `${state.word}, is not running` : state.word;
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
    const besides = row => row.marks.filter(mark => !["told", "begun", "finished"].includes(mark.kind)).map(mark => `${signs[mark.kind].meaning} after ${span(mark.at)}`).join(", ");
    return {
        heads: ["App", "User", "State", "Told after", "Began after", "Ended after", "Besides", "Its message", "Log"],
        cells: rows.map(row => [
            row.name, row.user === null ? "–" : String(row.user), `${row.sign} ${row.word}`, time(row.app.told), time(row.app.begun), time(row.app.finished),
            besides(row) || "–", row.detail ? (row.app.progress === "waived" ? `The administrator’s reason: ${row.detail}` : row.detail) : "–",
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
    const last = Math.max(0, ...round.apps.map(app => app.finished ?? 0));
    const waived = round.apps.filter(app => app.progress === "waived").length;
    const enforced = round.apps.filter(app => app.progress === "enforced").length;
    if (round.apps.length === 0)
        return { style: "good", text: "✓ No app held data of this session." };
    if (owing.length === 0 && !waived && enforced)
        return { style: "bad", text: `E Complete after ${span(last)}: ${enforced} of ${round.apps.length} stopped, and the data deleted in their place.` };
    if (owing.length === 0)
        return waived ? { style: "bad", text: `W Closed after ${span(last)}: ${waived} of ${round.apps.length} waived by an administrator.` }
            : { style: "good", text: `✓ Every app reported its data deleted, the last one after ${span(last)}.` };
    const failed = owing.filter(app => app.progress === "failed").length;
    const words = `${owing.length} of ${round.apps.length} ${owing.length === 1 ? "owes" : "owe"} a cleanup for ${span(Math.max(0, now - round.endedAt))}`;
    return { style: failed || round.outcome === "expired" ? "bad" : "waits", text: `${failed ? "✗" : "◑"} ${words}${failed ? `; ${failed} failed` : ""}${round.outcome === "expired" ? "; the next sign-in no longer waits for them" : ""}.` };
}
