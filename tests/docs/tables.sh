#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: tables.sh SOURCE_DIR. Checks that the tables of the documentation are complete. There must be a row for each
#   - layer in docs/reference/layers.md, loss in docs/reference/losses.md and metric in docs/how-to/training.md;
#   - floor in docs/design/architecture.md, and file of a backend in docs/contributing.md;
#   - exception in docs/reference/errors.md, and option of the examples in docs/reference/command-line.md;
#   - problem that the users of TensorFlow's tutorial reported in docs/how-to/from-tensorflow.md.
set -euo pipefail
cd "$1"
errors=0 checked=0
# row PAGE NAME: checks that the page has a row of a table that begins with the name in `code`.
row() {
    checked=$((checked + 1))
    grep -qE "^\| \`$2[\`<]" "docs/$1" && return
    echo "docs/$1 has no row that begins with \`$2\`"
    errors=$((errors + 1))
}

# The header of a layer defines a type that is not in impl.
for header in include/cupola/layers/*.hpp; do
    case ${header##*/} in layer.hpp | graph_operator.hpp | layer_description.hpp | layer_kind.hpp | parameters.hpp | options.hpp | initializer.hpp) continue ;; esac
    names=$(sed -E '/^namespace impl \{/,/^\}  \/\/ namespace impl/d' "$header" |
        sed -nE 's/^struct ([A-Z][A-Za-z0-9]*)( : .*)? \{(\};)?$/\1/p')
    [ -n "$names" ] || { echo "no layer was found in $header"; errors=$((errors + 1)); }
    for name in $names; do row reference/layers.md "$name"; done
done
# A loss of the data, and a regulariser.
for header in include/cupola/loss/*.hpp; do
    case ${header##*/} in data_losses.hpp | loss_collection.hpp | queue_loss.hpp | several_outputs.hpp) continue ;; esac
    names=$(sed -E '/^namespace impl \{/,/^\}  \/\/ namespace impl/d' "$header" | sed -nE 's/^struct ([A-Z][A-Za-z0-9]*)( : .*)? \{$/\1/p')
    [ -n "$names" ] || { echo "no loss was found in $header"; errors=$((errors + 1)); }
    for name in $names; do row reference/losses.md "$name"; done
done
for header in include/cupola/metrics/*.hpp; do
    case ${header##*/} in metric.hpp | metric_batch.hpp | at.hpp) continue ;; esac
    names=$(sed -nE 's/^struct ([A-Z][A-Za-z0-9]*) \{$/\1/p' "$header")
    [ -n "$names" ] || { echo "no metric was found in $header"; errors=$((errors + 1)); }
    for name in $names; do row how-to/training.md "metrics::$name"; done
done
# What is there is not listed among what is not.
for header in include/cupola/{layers,optim,loss,metrics}/*.hpp; do
    name=${header##*/}
    name=${name%.hpp}
    [ "$name" != layer ] || continue
    checked=$((checked + 1))
    if grep -E '\| no(;[^|]*)? \|' docs/reference/features.md | grep -qiE "(\| |, |\`)${name//_/[ _]?}s?[,\` ]"; then
        echo "docs/reference/features.md says that there is no $name, which is $header"
        errors=$((errors + 1))
    fi
done
for floor in include/cupola/*/; do
    floor=${floor%/}
    row design/architecture.md "${floor##*/}/"
done
for file in include/cupola/ops/host/*.hpp; do
    if [ -e "include/cupola/ops/${file##*/}" ]; then row contributing.md "${file##*/}"; fi
done
for name in $(sed -nE 's/^class ([A-Za-z]+) : public .*/\1/p' include/cupola/core/error.hpp); do row reference/errors.md "$name"; done
for main in examples/*/main.cpp; do
    for option in $(grep -oE '"--[a-z,-]+"' "$main" | tr -d '"' | tr ',' '\n' | sort -u); do
        checked=$((checked + 1))
        grep -qE "^\|.*\`$option\`" docs/reference/command-line.md && continue
        echo "docs/reference/command-line.md does not list $option of $main"
        errors=$((errors + 1))
    done
done
# The problems that the tutorial's users reported, each with a test.
for number in $(seq 16); do
    checked=$((checked + 1))
    grep -E "^\| $number \|" docs/how-to/from-tensorflow.md | grep -qE '`tests/[^`]*`|does not apply' && continue
    echo "docs/how-to/from-tensorflow.md has no row $number with a test"
    errors=$((errors + 1))
done
[ "$checked" -gt 20 ] || { echo "only $checked rows were looked for"; exit 1; }
echo "$checked rows checked, $errors errors"
[ "$errors" -eq 0 ]
