#!/bin/sh
# The command prints a line of JSON for each post, and the body of the loop handles it.
notify-center watch --distributed --json com.example.order | while read -r order; do
    total=$(expr "$order" : '.*"total": *\([0-9.]*\)')
    object=$(expr "$order" : '.*"object": *"\([^"]*\)"')
    echo "$object $total"
done
