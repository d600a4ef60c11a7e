#!/usr/bin/env bash
# Start a coordinator and use the command `deborgen`, both as they are installed in the given folder of programs.
# There is no worker, so the job stays queued. Everything that this makes is removed again.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="$(cd "${1:-.venv/bin}" && pwd)"
here="$(mktemp -d)"

# The person's own configuration is neither used nor touched.
export XDG_CONFIG_HOME="$here/config" XDG_STATE_HOME="$here/state" XDG_DATA_HOME="$here/data"
unset DEBORGEN_URL DEBORGEN_TOKEN DEBORGEN_TOKEN_FILE

coordinator=
end() {
    [ -z "$coordinator" ] || kill "$coordinator" 2> /dev/null || true
    [ -z "$coordinator" ] || wait "$coordinator" || true
    rm -rf "$here"
}
trap end EXIT

port="$("$bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
"$bin/deborgen-coordinator" serve --listen "127.0.0.1:$port" --data-dir "$here/pool" > "$here/log" 2>&1 &
coordinator=$!
"$bin/python" - "http://127.0.0.1:$port/health" << 'END' || { cat "$here/log" >&2; exit 1; }
import sys, time, urllib.request
deadline = time.monotonic() + 60
while True:
    try:
        sys.exit(urllib.request.urlopen(sys.argv[1], timeout=5).status != 200)
    except OSError:
        if time.monotonic() > deadline:
            sys.exit("the coordinator does not answer")
        time.sleep(0.1)
END

"$bin/deborgen-coordinator" token create --role admin --name smoke --data-dir "$here/pool" > "$here/token"
"$bin/deborgen" login "http://127.0.0.1:$port" < "$here/token"
"$bin/deborgen" submit examples/hello.yml
"$bin/deborgen" why 1.1
"$bin/deborgen" cancel last
"$bin/deborgen" list

kill "$coordinator"
wait "$coordinator"
coordinator=
"$bin/deborgen-coordinator" audit --data-dir "$here/pool"
echo "coordinator and command work"
