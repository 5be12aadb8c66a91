// A service of the system bus as Cockpit reaches it: questions, and who owns its name.

export const unsigned = value => ({ t: "t", v: value });
export const number = value => ({ t: "d", v: value });
export const text = value => ({ t: "s", v: value });
export const flag = value => ({ t: "b", v: value });

export class BusService {
    #client = null;
    #owner;
    /** Each ends a pause. */
    #pauses = new Set();
    #name;
    #path;

    /**
     * name: of the bus, and of the interface. waiting: how many seconds a question waits for a change. After a little more without an answer, the
     * service counts as gone.
     */
    constructor(name, path, waiting = 10) {
        this.#name = name;
        this.#path = path;
        this.waiting = waiting;
        // Cockpit's switch for administrative access: other rights need another connection.
        const permission = window.cockpit.permission({ admin: true });
        permission.addEventListener("changed", () => this.reconnect());
    }

    /** Grows when another process answers: what the one before has said of revisions counts no more. */
    owners = 0;

    /** Begins anew, and ends every pause. */
    reconnect() {
        const client = this.#client;
        this.#client = null;
        this.#owner = undefined;
        client?.close();
        this.owners += 1;
        this.wake();
    }

    /** Ends every pause. */
    wake() {
        for (const end of [...this.#pauses])
            end();
    }

    /** Waits so many seconds, or until the service's name has an owner. */
    pause(seconds) {
        return new Promise(resolve => {
            // Nothing is kept of a pause that is over: a page may be open for weeks.
            const end = () => {
                window.clearTimeout(timer);
                this.#pauses.delete(end);
                resolve();
            };
            const timer = window.setTimeout(end, seconds * 1000);
            this.#pauses.add(end);
        });
    }

    #connected() {
        if (this.#client)
            return this.#client;
        const client = window.cockpit.dbus(this.#name, { bus: "system", superuser: "try" });
        client.addEventListener("close", () => { if (this.#client === client) this.#client = null; });
        client.addEventListener("owner", (_event, owner) => {
            if (this.#client !== client)
                return;
            if (this.#owner !== undefined && owner !== this.#owner)
                this.owners += 1;
            this.#owner = owner;
            if (owner)
                this.wake();
        });
        this.#client = client;
        return client;
    }

    async call(method, fields, { waits = 0, asksPerson = false } = {}) {
        const client = this.#connected();
        let timer = null;
        const late = new Promise((_resolve, reject) => {
            timer = window.setTimeout(() => reject(new Error("no answer in time")), (asksPerson ? 65 : waits + 5) * 1000);
        });
        try {
            const call = client.call(this.#path, this.#name, method, [fields], { type: "a{sv}", ...(asksPerson ? { flags: "i" } : {}) });
            return (await Promise.race([call, late]))[0];
        } finally {
            window.clearTimeout(timer);
        }
    }
}
