// The broker as Cockpit reaches it: its methods, and who owns its name.

const name = "org.notifycenter.SharedDevice1";
const path = "/org/notifycenter/SharedDevice";

const unsigned = value => ({ t: "t", v: value });
const number = value => ({ t: "d", v: value });
const text = value => ({ t: "s", v: value });
const flag = value => ({ t: "b", v: value });

export class Broker {
    #client = null;
    #woken = [];

    /** waiting: how many seconds a question waits for a change. After a little more without an answer, the broker counts as gone. */
    constructor(waiting = 10) {
        this.waiting = waiting;
        // Cockpit's switch for administrative access: other rights need another connection.
        const permission = window.cockpit.permission({ admin: true });
        permission.addEventListener("changed", () => this.reconnect());
    }

    /** Begins anew, and ends every pause. */
    reconnect() {
        const client = this.#client;
        this.#client = null;
        client?.close();
        this.wake();
    }

    /** Ends every pause. */
    wake() {
        for (const resolve of this.#woken.splice(0))
            resolve();
    }

    /** Waits so many seconds, or until the broker's name has an owner. */
    pause(seconds) {
        return new Promise(resolve => {
            this.#woken.push(resolve);
            window.setTimeout(resolve, seconds * 1000);
        });
    }

    #connected() {
        if (this.#client)
            return this.#client;
        const client = window.cockpit.dbus(name, { bus: "system", superuser: "try" });
        client.addEventListener("close", () => { if (this.#client === client) this.#client = null; });
        client.addEventListener("owner", (_event, owner) => { if (owner) this.wake(); });
        this.#client = client;
        return client;
    }

    async #call(method, fields, { waits = 0, asksPerson = false } = {}) {
        const client = this.#connected();
        let timer = null;
        const late = new Promise((_resolve, reject) => {
            timer = window.setTimeout(() => reject(new Error("no answer in time")), (asksPerson ? 65 : waits + 5) * 1000);
        });
        try {
            const call = client.call(path, name, method, [fields], { type: "a{sv}", ...(asksPerson ? { flags: "i" } : {}) });
            return (await Promise.race([call, late]))[0];
        } finally {
            window.clearTimeout(timer);
        }
    }

    /** revision: of the last answer; `null` asks at once. */
    status(revision, asksPerson = false) {
        const fields = revision === null ? {} : { revision: unsigned(revision), wait: number(this.waiting) };
        return this.#call("GetStatus", fields, { waits: revision === null ? 0 : this.waiting, asksPerson });
    }

    round(session) { return this.#call("GetRound", { administration: flag(true), session: unsigned(session) }); }

    /** after: the last entry that is known; `null` asks for the newest. waits: whether to wait for entries. */
    log(after, limit, waits) {
        const fields = { limit: unsigned(limit) };
        if (after !== null)
            fields.after = unsigned(after);
        if (waits)
            fields.wait = number(this.waiting);
        return this.#call("GetLog", fields, { waits: waits ? this.waiting : 0 });
    }

    /** session: the one that the person was asked about, and no later one. */
    signOut(session) {
        return this.#call("SignOutAnyone", { session: unsigned(session), reason: text("the console") }, { asksPerson: true });
    }

    waive(app, user, session, reason) {
        const fields = { app: text(app), session: unsigned(session), reason: text(reason) };
        if (user !== null)
            fields.user = unsigned(user);
        return this.#call("Waive", fields, { asksPerson: true });
    }
}
