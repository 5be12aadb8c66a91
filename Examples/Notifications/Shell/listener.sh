#!/bin/sh
# A line of JSON for each post. The loop's body is what a script does with it.
notify-center watch --distributed --json com.example.order | while read -r order; do
    total=$(expr "$order" : '.*"total": *\([0-9.]*\)')
    object=$(expr "$order" : '.*"object": *"\([^"]*\)"')
    echo "$object $total"
done
