#!/bin/sh
# Notes of the signed-in user. `shared-device follow` keeps the app's record, runs the cleanup and sends the receipts.
export NOTES="${XDG_DATA_HOME:-$HOME/.local/share}/shell-notes"
mkdir -p "$NOTES"
shared-device follow --app org.notifycenter.example.shell-notes --cleanup 'rm -rf "$NOTES/$SHARED_DEVICE_FOLDER" && sync "$NOTES"' |
while read -r state; do
    case $state in *'"state":"open"'*) ;; *) echo hidden; continue ;; esac
    folder=$NOTES/$(expr "$state" : '.*"folder":"\([^"]*\)"')
    user=$(expr "$state" : '.*"username":"\([^"]*\)"')
    mkdir -p "$folder" && printf 'the secret of %s\n' "$user" >> "$folder/notes" && echo open
done
