#!/usr/bin/env bash
# What `make demo` shows: a pool on this machine, a sweep on it, its results. Everything it makes is in .demo/.
set -euo pipefail
cd "$(dirname "$0")/.."

demo="$PWD/.demo"
export PATH="$PWD/.venv/bin:$PATH"
# The person's own configuration is neither used nor touched.
export XDG_CONFIG_HOME="$demo/config" XDG_STATE_HOME="$demo/state" XDG_DATA_HOME="$demo/data"
unset DEBORGEN_URL DEBORGEN_TOKEN DEBORGEN_TOKEN_FILE

show() {
    if [ -t 2 ]; then printf '\n\033[1m$ %s\033[0m\n' "$*" >&2; else printf '\n$ %s\n' "$*" >&2; fi
    "$@"
}

deborgen down 2> /dev/null   # in case an earlier demo was interrupted
rm -rf "$demo"
mkdir -p "$demo"
trap 'deborgen down 2> /dev/null' EXIT

show deborgen up --detach
show deborgen submit examples/pi/pi.yml --watch
show deborgen results last --sort error
printf '\nThe best estimate of pi:\n'
show deborgen results last --best error:min
show deborgen artifacts pull last --into .demo/darts > /dev/null
best=$(deborgen results last --best error:min | tail -n 1 | cut -f 1)
show deborgen logs "$best"
printf '\nThe darts of the best estimate: .demo/darts/%s/darts.svg\n' "${best#*.}"
printf 'Everything that the demo made is in .demo/\n'
address=$(deborgen open --no-browser last | sed 's|/sign-in.*||')
if [ -n "${KEEP:-}" ]; then
    trap - EXIT
    printf '\nThe pool stays up at %s. See it in a browser, with this link, which works once within a minute:\n' "$address"
    deborgen open --no-browser last
    printf 'For another link, and to stop the pool:\n'
    for command in 'deborgen open' 'deborgen down'; do
        printf '  XDG_CONFIG_HOME=%s/config XDG_STATE_HOME=%s/state XDG_DATA_HOME=%s/data .venv/bin/%s\n' "$demo" "$demo" "$demo" "$command"
    done
else
    show deborgen down
    trap - EXIT
    printf '\nThe pool was at %s. To leave it up, and see it in a browser: make demo KEEP=1\n' "$address"
fi
