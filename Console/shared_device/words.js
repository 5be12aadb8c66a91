// Values in words for people. Pure.

/** A time span, from seconds: 7 ms, 1.4 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function span(seconds) {
    if (seconds < 0.9995)
        return `${Math.max(0, Math.round(seconds * 1000))} ms`;
    if (seconds < 9.95)
        return `${seconds.toFixed(1)} s`;
    const whole = Math.round(seconds);
    if (whole < 60)
        return `${whole} s`;
    const [days, hours, minutes, rest] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
    if (days)
        return hours ? `${days} d ${hours} h` : `${days} d`;
    if (hours)
        return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
    return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
}

const pad = value => String(value).padStart(2, "0");

/** The time of day; with the date if that is not today. */
export function clock(seconds, now) {
    const [date, today] = [new Date(seconds * 1000), new Date(now * 1000)];
    const time = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
    if (date.toDateString() === today.toDateString())
        return time;
    return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${time}`;
}

/** `1 app`, `3 apps`. */
export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** The part before the parentheses of the key by which the broker names an app: the identifier or the program. */
const identifier = key => key.endsWith(")") && key.includes(" (") ? key.slice(0, key.indexOf(" (")) : key;

function short(key) {
    const name = identifier(key);
    return name.split(name.startsWith("/") ? "/" : ".").filter(Boolean).pop() ?? key;
}

/** Names for these apps, as the command shows them: the last part of each identifier, if no other app has the same. */
export function namesOf(keys) {
    const all = [...new Set(keys)];
    const only = (name, of) => all.filter(key => of(key) === name).length === 1;
    const names = new Map(all.map(key => {
        if (only(short(key), short))
            return [key, short(key)];
        return [key, only(identifier(key), identifier) ? identifier(key) : key];
    }));
    return key => names.get(key) ?? key;
}

/** The reason why a service does not respond to this page although it responds to other clients. */
export const busy = "This page is open too often: this user has too many pending requests. Close it in other windows and browsers; it then continues by itself.";

/** The policy in a sentence. */
export function policy({ policy, timeout }) {
    if (policy === "strict")
        return timeout === null ? "Strict: the next person waits until every app has deleted this one’s data."
            : `Strict: the next person waits for the apps, for ${span(timeout)} at most.`;
    if (policy === "enforced")
        return `Enforced: an app that has not deleted this person’s data after ${span(timeout ?? 60)} is stopped, and its data deleted; the next person waits.`;
    if (policy === "advisory")
        return timeout ? `Advisory, but the next person waits for the apps, for ${span(timeout)} at most.` : "Advisory: the next person waits for no app.";
    return policy ? `Cleanup policy: ${policy}.` : "";
}

/** The consequence of a sign-out, shown before the user confirms it. */
export function consequence(device) {
    const apps = device.apps.filter(app => app.holds).length;
    const name = device.account?.name ?? "The person";
    if (apps === 0)
        return `${name} is signed out of this device at once. No app holds data.`;
    return `${name} is signed out of this device at once. ${count(apps, "app")} ${apps === 1 ? "holds" : "hold"} data of this session and will delete it; ` +
        "work that is not saved elsewhere is lost.";
}
