// The round that the user wants to see, and the response that counts for it. Pure: `ask` fetches a round.

export class RoundChoice {
    #ask;
    #wanted = null;
    /** The number of requests sent, and the number of the latest request that has its response. */
    #asked = 0;
    #answered = 0;

    /** ask: fetches the round of a session; `null` if the broker no longer keeps it. */
    constructor(ask) { this.#ask = ask; }

    /** The session that the user has chosen; `null` for the latest session. */
    get wanted() { return this.#wanted; }

    choose(session) { this.#wanted = session; }

    /**
     * The round to show, or `null` if there is none. If the user chooses another round during the request, returns
     * that round. If the broker no longer keeps the chosen round, the choice goes back to the latest session.
     *
     * sessions: the device's sessions, the latest one at the end.
     */
    async round(sessions) {
        for (;;) {
            const wanted = this.#wanted;
            const isKept = wanted === null || sessions.includes(wanted);
            const session = isKept ? wanted ?? sessions[sessions.length - 1] : undefined;
            const number = this.#asked += 1;
            const round = session === undefined ? null : await this.#ask(session);
            // Discards a response to an older choice, and a response that a newer one has overtaken.
            if (this.#wanted !== wanted || number < this.#answered)
                continue;
            this.#answered = number;
            if (round || wanted === null)
                return round;
            this.#wanted = null;
        }
    }
}
