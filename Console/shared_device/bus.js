// A client for a service of the system bus, by way of Cockpit: sends requests and follows the owner of the bus name.

import { say } from "./texts.js";

export const unsigned = value => ({ t: "t", v: value });
export const number = value => ({ t: "d", v: value });
export const text = value => ({ t: "s", v: value });
export const flag = value => ({ t: "b", v: value });

export class BusService {
    #client = null;
    #owner;
    /** Functions, each of which ends a pause. */
    #pauses = new Set();
    #name;
    #path;

    /**
     * name: the bus name, which is also the name of the interface. waiting: how long a request waits for a change, in
     * seconds. If no response has come 5 s after that, the request fails, and the page treats the service as gone.
     */
    constructor(name, path, waiting = 10) {
        this.#name = name;
        this.#path = path;
        this.waiting = waiting;
        // Cockpit's switch for administrative access changes the rights. Only a new connection has the new rights.
        const permission = window.cockpit.permission({ admin: true });
        permission.addEventListener("changed", () => this.reconnect());
    }

    /** The number of changes of the owner. Revisions of a previous owner are no longer valid. */
    owners = 0;

    /** Closes the connection and ends every pause. The next call connects again. */
    reconnect() {
        const client = this.#client;
        this.#client = null;
        this.#owner = undefined;
        client?.close();
        this.owners += 1;
        this.wake();
    }

    wake() {
        for (const end of [...this.#pauses])
            end();
    }

    /** Waits for this number of seconds, or until the service's name gets an owner. */
    pause(seconds) {
        return new Promise(resolve => {
            // Removes itself at its end, because a page may be open for weeks.
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
            timer = window.setTimeout(() => reject(new Error(say("noResponse"))), (asksPerson ? 65 : waits + 5) * 1000);
        });
        try {
            const call = client.call(this.#path, this.#name, method, [fields], { type: "a{sv}", ...(asksPerson ? { flags: "i" } : {}) });
            return (await Promise.race([call, late]))[0];
        } finally {
            window.clearTimeout(timer);
        }
    }
}
