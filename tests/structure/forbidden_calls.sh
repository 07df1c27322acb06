#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: forbidden_calls.sh INCLUDE_DIR. Fails with each line of a header that calls a function, or has an expression, whose
# result depends on what the caller's program does: its compiler's flags, its locale.
set -euo pipefail
cd "$1"

errors=0
# forbid WHY PATTERN FILE...: lines whose code, without its comment, matches the Perl pattern. The files may have it.
forbid() {
    local why=$1 pattern=$2 file line
    shift 2
    while IFS=: read -r file line; do
        case " $* " in *" ${file#./} "*) continue ;; esac
        echo "$file:$line: $why"
        errors=$((errors + 1))
    done < <(grep -rnP --include='*.[hi]pp' --include='*.cuh' "^((?!//).)*($pattern)" . | grep -vP '^[^:]*ops/(cuda|impl/kernel_parts)/' | cut -d: -f1,2)
}

# -ffast-math and -ffinite-math-only make constants of these. Kernels of Cuda (ops/cuda/, ops/impl/kernel_parts/) are not compiled so.
forbid 'use is_finite or is_nan of core/finite.hpp' \
    '\b(isfinite|isnan|isinf|isnormal|fpclassify|isunordered)\(|__builtin_is(finite|nan|inf|normal)'
forbid 'compares a number with itself: use is_nan of core/finite.hpp' \
    '(?<![\w.>\]:*])(\w+(?:\[\w+\])?) [!=]= \g{-1}(?![\w.([]|->|::)' \
    cupola/ops/pooling.hpp # a loop of vector instructions
forbid 'use not_a_number of core/finite.hpp' \
    '\bNAN\b|(quiet|signaling)_NaN|__builtin_nans?[fl]?\(' \
    cupola/ops/math.hpp # loops of vector instructions
forbid 'compares with infinity: use is_finite of core/finite.hpp' \
    '[<>=]= ?-?(INFINITY|HUGE_VALF?|__builtin_(inf|huge_val)f?\(\)|std::numeric_limits<\w+>::infinity\(\))|(?<![<-])[<>] -?(INFINITY|HUGE_VALF?|__builtin_(inf|huge_val)f?\(\)|std::numeric_limits<\w+>::infinity\(\))' \
    cupola/ops/math.hpp

# setlocale of the program changes these: text() and Decimals, std::to_chars and std::from_chars do not depend on it.
forbid 'depends on the locale: write numbers by text(), Decimals or SignificantDigits' \
    '"[^"]*%[-+#0]*[0-9*]*(\.[0-9*]+)?L?[aefgAEFG](?![A-Za-z])|std::to_string\(|stringstream|iostream'
forbid 'depends on the locale: read numbers by std::from_chars' '\b(strto(d|f|ld)|sto(f|d|ld)|atof)\('
forbid 'the locale is the program'"'"'s' '\bsetlocale\(|std::locale\b'

# ctags, and the outlines that editors make with it, see no definition in a namespace that is spelled so.
forbid 'write namespace cupola { inline namespace NAME {' 'namespace [\w:]*::inline\b'

files=$(find . -name '*.hpp' | wc -l)
echo "$files headers checked, $errors errors"
[ "$files" -gt 0 ] && [ "$errors" -eq 0 ]
