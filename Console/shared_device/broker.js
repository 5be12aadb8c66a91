// The broker's methods.

import { BusService, flag, number, text, unsigned } from "./bus.js";

export class Broker extends BusService {
    constructor() { super("org.notifycenter.SharedDevice1", "/org/notifycenter/SharedDevice"); }

    /** revision: of the last response; the broker then waits for a change. `null` asks for a response at once. */
    status(revision, asksPerson = false) {
        const fields = revision === null ? {} : { revision: unsigned(revision), wait: number(this.waiting) };
        return this.call("GetStatus", fields, { waits: revision === null ? 0 : this.waiting, asksPerson });
    }

    round(session) { return this.call("GetRound", { administration: flag(true), session: unsigned(session) }); }

    /** after: the last known entry; `null` asks for the newest ones. waits: whether to wait for new entries. */
    log(after, limit, waits) {
        const fields = { limit: unsigned(limit) };
        if (after !== null)
            fields.after = unsigned(after);
        if (waits)
            fields.wait = number(this.waiting);
        return this.call("GetLog", fields, { waits: waits ? this.waiting : 0 });
    }

    /** session: the session that the dialog named. The broker does not sign out a later session. */
    signOut(session) {
        return this.call("SignOutAnyone", { session: unsigned(session), reason: text("the console") }, { asksPerson: true });
    }

    waive(app, user, session, reason) {
        const fields = { app: text(app), session: unsigned(session), reason: text(reason) };
        if (user !== null)
            fields.user = unsigned(user);
        return this.call("Waive", fields, { asksPerson: true });
    }
}
