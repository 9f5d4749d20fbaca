#!/bin/sh
# Says what this machine lacks before anything is built. Run by make; takes the Python to use.
python=${1:-python3}
missing=0

lacks() {
    missing=1
    printf 'missing: %s\n   get it: %s\n' "$1" "$2" >&2
}

wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! command -v cargo >/dev/null 2>&1; then
    lacks "Rust $wanted or newer" "install rustup (www.rust-lang.org/tools/install), then open a new shell"
else
    found=$(rustc --version 2>/dev/null | cut -d ' ' -f 2 | cut -d - -f 1)
    oldest=$(printf '%s\n%s\n' "$wanted" "${found:-0}" | sort -V | head -n 1)
    [ "$oldest" = "$wanted" ] || lacks "Rust $wanted or newer; this is ${found:-none}" "rustup update stable"
    cargo fmt --version >/dev/null 2>&1 || lacks "rustfmt" "rustup component add rustfmt"
    cargo clippy --version >/dev/null 2>&1 || lacks "clippy" "rustup component add clippy"
fi

command -v cc >/dev/null 2>&1 || lacks "a C compiler" "apt install build-essential"

if ! command -v "$python" >/dev/null 2>&1; then
    lacks "Python 3.10 or newer" "apt install python3 python3-venv"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    lacks "Python 3.10 or newer; $python is $("$python" --version)" "install one, and: make PYTHON=python3.12"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null && ! "$python" -m virtualenv --version >/dev/null 2>&1; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    lacks "venv of Python $version" "apt install python3-venv (or python$version-venv), or: pip install virtualenv"
fi

exit $missing
