// Parses the broker's responses. Pure: takes D-Bus values as Cockpit gives them and returns plain values.
// A response comes from another process: a field that is missing or has another type becomes a default, never an error.

/** Unwraps the variants of a value, at every depth. */
export function plain(value) {
    if (Array.isArray(value))
        return value.map(plain);
    if (value === null || typeof value !== "object")
        return value;
    if ("t" in value && "v" in value && typeof value.t === "string")
        return plain(value.v);
    return Object.fromEntries(Object.entries(value).map(([key, field]) => [key, plain(field)]));
}

const text = value => typeof value === "string" ? value : "";
const number = value => typeof value === "number" && Number.isFinite(value) ? value : null;
const list = value => Array.isArray(value) ? value : [];

/** Parses the response of GetStatus. Times are in seconds since 1970, by the device's clock. */
export function deviceOf(answer) {
    const fields = plain(answer);
    return {
        revision: number(fields.revision) ?? 0,
        time: number(fields.time) ?? 0,
        mode: text(fields.mode),
        epoch: number(fields.epoch) ?? 0,
        organization: text(fields.organization),
        account: fields.account ? { name: text(fields.account.displayName) || text(fields.account.username), username: text(fields.account.username) } : null,
        signedInAt: number(fields.signedInAt),
        policy: text(fields.cleanupPolicy),
        timeout: number(fields.cleanupTimeout),
        heldFor: list(fields.signInHeldFor).map(text),
        problems: [fields.configurationProblem, fields.storeProblem, fields.keyProblem, fields.enforcementProblem, fields.loginProblem].map(text).concat(list(fields.enforcementProblems).map(text), list(fields.manifestProblems).map(text)).filter(Boolean),
        certificates: list(fields.certificates).map(certificate => ({
            use: text(certificate.use), file: text(certificate.file), end: number(certificate.end), problem: text(certificate.problem),
        })),
        rounds: list(fields.rounds).filter(round => number(round) !== null),
        apps: list(fields.apps).map(app => ({
            identifier: text(app.identifier),
            user: number(app.user),
            runs: app.isRunning === true,
            holds: app.holdsData === true,
            owes: list(app.owes).filter(session => number(session) !== null),
            problem: text(app.startProblem),
        })),
    };
}

/** Parses the response of GetRound; `null` if there is no such round. Times of apps are in seconds since the sign-out. */
export function roundOf(answer) {
    const round = plain(answer).round;
    if (!round)
        return null;
    return {
        session: number(round.session) ?? 0,
        endedAt: number(round.endedAt) ?? 0,
        outcome: text(round.outcome),
        apps: list(round.apps).map(app => ({
            identifier: text(app.identifier),
            user: number(app.user),
            progress: text(app.progress),
            told: number(app.toldAfter),
            begun: number(app.begunAfter),
            finished: number(app.finishedAfter),
            detail: text(app.detail),
            runs: app.isRunning === true,
        })),
    };
}

/** Parses the response of GetLog: its entries, oldest first. */
export function entriesOf(answer) {
    return list(plain(answer).entries).map(entry => ({
        sequence: number(entry.sequence) ?? 0,
        at: number(entry.at) ?? 0,
        event: text(entry.event),
        session: number(entry.session),
        app: text(entry.app),
        user: number(entry.user),
        detail: text(entry.detail),
    }));
}

/** Why a request failed: `denied`; `busy` if this user has too many open requests; `gone` for every other error. */
export function problemOf(error) {
    const name = error?.name ?? error?.problem ?? "";
    if (name === "org.freedesktop.DBus.Error.LimitsExceeded")
        return "busy";
    return name.endsWith(".Error.not_permitted") || name === "org.freedesktop.DBus.Error.AccessDenied" || name === "access-denied" ? "denied" : "gone";
}
