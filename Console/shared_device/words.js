// Values in words for people. Pure.

import { decimal, moment, say } from "./texts.js";

const unit = (name, count, digits = 0) => say(`unit.${name}`, { count, value: decimal(count, digits) });

/** A time span, from seconds: 7 ms, 1.4 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function span(seconds) {
    if (seconds < 0.9995)
        return unit("ms", Math.max(0, Math.round(seconds * 1000)));
    if (seconds < 9.95)
        return unit("s", seconds, 1);
    const whole = Math.round(seconds);
    const parts = [["d", Math.floor(whole / 86400)], ["h", Math.floor(whole / 3600) % 24], ["min", Math.floor(whole / 60) % 60], ["s", whole % 60]];
    const first = parts.findIndex(([, count]) => count > 0);
    return parts.slice(first, first + 2).filter(([, count]) => count > 0).map(([name, count]) => unit(name, count)).join(" ");
}

const date = { year: "numeric", month: "short", day: "numeric" };
const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

/** The time of day; with the date if that is not today. */
export function clock(seconds, now) {
    const isToday = new Date(seconds * 1000).toDateString() === new Date(now * 1000).toDateString();
    return moment(seconds, isToday ? time : { ...date, ...time });
}

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

/** The policy in a sentence. */
export function policy({ policy, timeout }) {
    if (policy === "strict")
        return timeout === null ? say("policy.strict") : say("policy.strict.limit", { time: span(timeout) });
    if (policy === "enforced")
        return say("policy.enforced", { time: span(timeout ?? 60) });
    if (policy === "advisory")
        return timeout ? say("policy.advisory.limit", { time: span(timeout) }) : say("policy.advisory");
    return policy ? say("policy.other", { policy }) : "";
}

/** How long a certificate is still valid, as a predicate. */
export function remaining(end, now) {
    const days = Math.floor((end - now) / 86400);
    return days < 0 ? say("certificate.ended") : days === 0 ? say("certificate.endsSoon") : say("certificate.ends", { count: days });
}

export const certificateUses = ["provider", "fleetAgent", "fleetAuthority"];

/** When a certificate of the device ends. It is bad from 30 days before the end, and if the end is unknown. */
export function term({ use, file, end, problem }, now) {
    const name = certificateUses.includes(use) ? say(`certificate.of.${use}`) : use;
    if (end === null)
        return { isBad: true, text: say("certificate.problem", { name, problem: problem || say("certificate.unknown") }) };
    return { isBad: end - now < 30 * 86400, text: say("certificate.line", { name, file, term: remaining(end, now) }) };
}

/** The consequence of a sign-out, shown before the user confirms it. */
export function consequence(device) {
    const count = device.apps.filter(app => app.holds).length;
    const name = device.account?.name ?? "–";
    return count === 0 ? say("signOut.consequence.none", { name }) : say("signOut.consequence", { name, count });
}
