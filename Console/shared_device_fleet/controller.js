// The controller's reading methods, and the parsers of their responses. A response may contain texts of a hostile
// device: a field that is missing or has another type becomes a default, never an error.

import { plain, roundOf } from "../shared_device/answers.js";
import { BusService, flag, number as real, text as words, unsigned } from "../shared_device/bus.js";

export class Controller extends BusService {
    constructor() { super("org.notifycenter.SharedDeviceFleet1", "/org/notifycenter/SharedDeviceFleet"); }

    /** The orders, newest first, with the numbers of their devices but not the names: there may be 100,000. */
    orders() { return this.call("GetOrders", { limit: unsigned(100), names: flag(false) }); }

    order(number) { return this.call("GetOrder", { order: unsigned(number), names: flag(false) }); }

    /**
     * changedAfter: a revision; `null` for all devices. waits: whether to wait for a change. after: the last device of
     * the previous page. order: the number of the order to which the states refer.
     */
    devices({ changedAfter, after = null, order = null, waits = false }) {
        const fields = { limit: unsigned(1000) };
        if (changedAfter !== null)
            fields.changedAfter = unsigned(changedAfter);
        if (after !== null)
            fields.after = words(after);
        if (order !== null)
            fields.order = unsigned(order);
        if (waits)
            fields.wait = real(this.waiting);
        return this.call("GetDevices", fields, { waits: waits ? this.waiting : 0 });
    }

    device(name, order) {
        return this.call("GetDevice", { device: words(name), ...(order === null ? {} : { order: unsigned(order) }) });
    }
}

const text = value => typeof value === "string" ? value : "";
const number = value => typeof value === "number" && Number.isFinite(value) ? value : null;
const list = value => Array.isArray(value) ? value : [];

/** Parses the response of GetOrders. */
export function ordersOf(answer) {
    return list(plain(answer).orders).filter(order => number(order?.order) !== null).map(order => ({
        number: order.order, at: number(order.at), reason: text(order.reason), isForAll: order.all === true, devices: number(order.count) ?? list(order.devices).length,
    }));
}

/** Parses the response of GetOrder. */
export function progressOf(answer) {
    const fields = plain(answer);
    const counts = Object.entries(fields.counts ?? {}).filter(([, count]) => number(count) !== null);
    return {
        number: number(fields.order), at: number(fields.at), reason: text(fields.reason), isForAll: fields.all === true, session: number(fields.session),
        total: number(fields.total) ?? 0, undone: number(fields.undoneCount) ?? Infinity, waived: number(fields.waived) ?? 0, enforced: number(fields.enforced) ?? 0, counts: Object.fromEntries(counts),
        rows: list(fields.undone).map(rowOf).filter(row => row.name),
    };
}

/** Parses the response of GetDevices. */
export function pageOf(answer) {
    const fields = plain(answer);
    return {
        revision: number(fields.revision) ?? 0, isWhole: fields.isWhole === true, hasMore: fields.more === true, time: number(fields.time) ?? 0,
        isConnected: fields.isConnected === true, highest: number(fields.highest) ?? 0, listed: number(fields.listed) ?? 0, unlisted: number(fields.unlisted) ?? 0, problem: text(fields.problem), refusal: text(fields.refusal), warning: text(fields.warning),
        devices: list(fields.devices).map(rowOf).filter(row => row.name),
    };
}

function rowOf(device) {
    const fields = device && typeof device === "object" ? device : {};
    return {
        name: text(fields.device), state: text(fields.state), isListed: fields.isListed === true, isOnline: typeof fields.isOnline === "boolean" ? fields.isOnline : null,
        groups: list(fields.groups).map(text), reportedAt: number(fields.reportedAt), mode: text(fields.mode), session: number(fields.session),
        owes: number(fields.owes), owing: list(fields.owing).map(text), since: number(fields.since), signsOutBy: number(fields.signsOutBy), detail: text(fields.detail),
        clockOffset: number(fields.clockOffset), certificateEnd: number(fields.certificateEnd), problems: list(fields.problems).map(text).filter(Boolean),
    };
}

/** Parses the response of GetDevice; its rounds have the form that the device's own console uses. */
export function deviceOf(answer) {
    const fields = plain(answer);
    const rounds = list(fields.rounds).map(round => ({ ...roundOf({ round }), hasTime: number(round?.endedAt) !== null, more: number(round?.more) ?? 0 }));
    return { ...rowOf(fields), time: number(fields.time) ?? 0, rounds: rounds.sort((one, other) => one.session - other.session) };
}
