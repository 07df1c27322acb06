# SPDX-License-Identifier: Apache-2.0
#
# For the tests of a script: NAME_test.sh sources this file, and tries NAME.sh on $tree, a folder that is removed at the end.
set -euo pipefail
script=${0%_test.sh}.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# says accepted|refused WORDS WHAT: fails unless that is the result for the tree, with these words where it is refused.
says() {
    if "$script" "$tree" >"$tree/output" 2>&1; then result=accepted; else result=refused; fi
    if [ "$result" != "$1" ] || { [ "$result" = refused ] && ! grep -q "$2" "$tree/output"; }; then
        echo "$3 was $result:"
        cat "$tree/output"
        exit 1
    fi
}
