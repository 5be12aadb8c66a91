#!/usr/bin/env -S gjs -m
// Notes on a shared device, in JavaScript (GJS). The app uses only the broker's D-Bus interface
// (Documentation/Interface.md).
//
//     gjs -m notes.js FOLDER
//
// Each session has a folder in FOLDER, named by the session's number. The folders are also the app's record of
// sessions. The app makes a session's folder and syncs it to the disk before it shows or stores anything. It deletes
// each folder that the broker does not name as the current session's.
//
// This design is for an app with one process.

import Gio from 'gi://Gio';
import GLib from 'gi://GLib';
import System from 'system';

const BROKER = 'org.notifycenter.SharedDevice1';
const OBJECT = '/org/notifycenter/SharedDevice';
const BROADCAST = 'org.notifycenter.Darwin1.SHARED_MODE_CURRENT_ACCOUNT_CHANGED';
const APP = 'org.notifycenter.example.javascript-notes';

const [folder] = System.programArgs;
if (!folder) {
    printerr('usage: notes.js FOLDER');
    System.exit(64);
}
const data = Gio.File.new_for_path(folder);
GLib.mkdir_with_parents(folder, 0o700);

/** The session on the screen; null if there is none. */
let shown = null;
let isAsking = false, mustAsk = false;

const bus = connect();

function connect() {
    const name = GLib.getenv('NOTIFY_CENTER_BUS') ?? 'session';
    if (name === 'session' || name === 'system')
        return Gio.bus_get_sync(name === 'session' ? Gio.BusType.SESSION : Gio.BusType.SYSTEM, null);
    const {AUTHENTICATION_CLIENT, MESSAGE_BUS_CONNECTION} = Gio.DBusConnectionFlags;
    return Gio.DBusConnection.new_for_address_sync(name, AUTHENTICATION_CLIENT | MESSAGE_BUS_CONNECTION, null, null);
}

/** Calls the broker, and returns its response as an object. */
function call(method, fields) {
    const request = new GLib.Variant('(a{sv})', [{application: new GLib.Variant('s', APP), ...fields}]);
    return new Promise((resolve, reject) => {
        bus.call(BROKER, OBJECT, BROKER, method, request, null, Gio.DBusCallFlags.NONE, 25_000, null, (_, result) => {
            try {
                resolve(bus.call_finish(result).recursiveUnpack()[0]);
            } catch (error) {
                reject(error);
            }
        });
    });
}

/** Runs a program of coreutils to its end. GIO has no fsync and cannot delete a whole tree. */
function run(...command) {
    const process = Gio.Subprocess.new(command, Gio.SubprocessFlags.NONE);
    process.wait_check(null);
}

function hide() {
    if (shown !== null)
        print('hidden');
    shown = null;
}

/** Deletes a session's folder, and then sends the receipt, which returns the debt's mark to the broker. */
async function clean(session, mark) {
    hide();
    const number = {session: new GLib.Variant('t', session), mark: new GLib.Variant('t', mark)};
    await call('ReportCleanup', {...number, progress: new GLib.Variant('s', 'begun')});
    run('rm', '-rf', '--one-file-system', '--', `${folder}/${session}`);
    run('sync', folder);
    await call('ReportCleanup', {...number, progress: new GLib.Variant('s', 'finished')});
}

/** The sessions that have a folder. */
function sessions() {
    const entries = [...data.enumerate_children('standard::name', Gio.FileQueryInfoFlags.NOFOLLOW_SYMLINKS, null)];
    return entries.map(entry => entry.get_name()).filter(name => /^[1-9][0-9]*$/.test(name)).map(Number);
}

/** Records the session on the disk, and only then shows and stores its data. */
function show(session, account) {
    if (shown === session)
        return;
    GLib.mkdir_with_parents(`${folder}/${session}`, 0o700);
    run('sync', `${folder}/${session}`, folder);
    const notes = Gio.File.new_for_path(`${folder}/${session}/notes`).append_to(Gio.FileCreateFlags.PRIVATE, null);
    notes.write_all(`the secret of ${account.username}\n`, null);
    notes.close(null);
    shown = session;
    print('open');
}

/** Asks the broker once and acts on the response. */
async function follow() {
    const answer = await call('GetCurrentAccount', {});
    const current = answer.account ? answer.epoch : null;
    const over = new Map(sessions().filter(session => session !== current).map(session => [session, 0]));
    for (const one of answer.owed ?? [])
        over.set(one.epoch, one.mark ?? 0);
    for (const [session, mark] of over)
        await clean(session, mark);
    // The session may have changed during the cleanup: ask again.
    if (over.size > 0)
        mustAsk = true;
    else if (current !== null)
        show(current, answer.account);
    else
        hide();
}

/** Asks the broker, with one request at a time. Tries again a second after a failure. */
async function ask() {
    mustAsk = true;
    if (isAsking)
        return;
    isAsking = true;
    while (mustAsk) {
        mustAsk = false;
        try {
            await follow();
        } catch (error) {
            // It is unknown who is signed in, or a cleanup has failed.
            hide();
            printerr(`notes: ${error.message}; trying again`);
            GLib.timeout_add(GLib.PRIORITY_DEFAULT, 1000, () => {
                ask();
                return GLib.SOURCE_REMOVE;
            });
        }
    }
    isAsking = false;
}

// Subscribes before the first request: the bus handles this connection's messages in order, so no change is missed.
// The match rule admits only the broker's signals.
bus.signal_subscribe(BROKER, BROADCAST, 'Posted', '/org/notifycenter', null, Gio.DBusSignalFlags.NONE, ask);
bus.signal_subscribe('org.freedesktop.DBus', 'org.freedesktop.DBus', 'NameOwnerChanged', null, BROKER,
    Gio.DBusSignalFlags.NONE, ask);
const loop = new GLib.MainLoop(null, false);
bus.connect('closed', () => {
    hide();
    loop.quit();
});
print('hidden');
ask();
loop.run();
System.exit(69);
