// The two questions that the page asks before it changes anything.

import { at, write } from "./dom.js";

/**
 * Opens a dialog. `act` does what it is about, and its refusal is shown in the dialog, which stays open. Where the dialog was opened for something else
 * meanwhile, what becomes of it is not said there.
 *
 * valid: whether the form may be sent.
 */
export function ask(name, act) {
    const dialog = at(`${name}-dialog`);
    const [form, problem] = [dialog.querySelector("form"), at(`${name}-error`)];
    const submit = form.querySelector("[type=submit]");
    write(problem, "");
    submit.disabled = false;
    const submitted = async event => {
        event.preventDefault();
        submit.disabled = true;
        write(problem, "");
        try {
            await act();
            if (form.onsubmit === submitted)
                dialog.close();
        } catch (error) {
            if (form.onsubmit === submitted)
                write(problem, error?.message || "The broker does not answer.");
        } finally {
            if (form.onsubmit === submitted)
                submit.disabled = false;
        }
    };
    form.onsubmit = submitted;
    form.querySelector(".cancel").onclick = () => dialog.close();
    dialog.showModal();
}
