// The two questions that the page asks before it changes anything.

import { at, write } from "./dom.js";

/**
 * Opens a dialog. `act` does what it is about, and its refusal is shown in the dialog, which stays open.
 *
 * valid: whether the form may be sent.
 */
export function ask(name, act) {
    const dialog = at(`${name}-dialog`);
    const [form, problem] = [dialog.querySelector("form"), at(`${name}-error`)];
    const submit = form.querySelector("[type=submit]");
    write(problem, "");
    submit.disabled = false;
    form.onsubmit = async event => {
        event.preventDefault();
        submit.disabled = true;
        write(problem, "");
        try {
            await act();
            dialog.close();
        } catch (error) {
            write(problem, error?.message || "The broker does not answer.");
        } finally {
            submit.disabled = false;
        }
    };
    form.querySelector(".cancel").onclick = () => dialog.close();
    dialog.showModal();
}
