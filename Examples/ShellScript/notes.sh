#!/bin/sh
# Notes of whoever is signed in, on a shared device. The command keeps the record, deletes, and gives the receipt.
export NOTES="${XDG_DATA_HOME:-$HOME/.local/share}/shell-notes"
shared-device follow --app org.notifycenter.example.shell-notes --cleanup 'rm -rf "$NOTES/$SHARED_DEVICE_FOLDER"' |
while read -r state; do
    case $state in
    *'"state":"open"'*)
        folder=$NOTES/$(expr "$state" : '.*"folder":"\([^"]*\)"')
        mkdir -p "$folder" && echo "the secret of $(expr "$state" : '.*"username":"\([^"]*\)"')" >> "$folder/notes"
        echo open ;;
    *) echo hidden ;;
    esac
done
