#!/usr/bin/env bash
# Makes some targets, one after the other, until one fails, and prints how long each took.
set -uo pipefail
cd "$(dirname "$0")/.."

status=0
table=""
for part in "$@"; do
    begun=$SECONDS
    ${MAKE:-make} "$part" || status=$?
    taken=$((SECONDS - begun))
    table+=$(printf '%-14s %3d:%02d  %s' "$part" $((taken / 60)) $((taken % 60)) "$([ $status = 0 ] && echo passed || echo failed)")$'\n'
    [ $status = 0 ] || break
done
printf '\npart           min:s\n%s' "$table"
exit $status
