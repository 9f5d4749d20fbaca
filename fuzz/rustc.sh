#!/bin/sh
# A wrapper of rustc that counts which edges run in the server's code, for libFuzzer; other code is compiled as it is.
case " $* " in
*" --crate-name tidemill_server "*)
    exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1
    ;;
*) exec "$@" ;;
esac
