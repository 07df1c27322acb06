# SPDX-License-Identifier: Apache-2.0
#
# What the cases expect of the compiler, for check.sh and errors.sh:
#   // expect: the message           (of every compiler)
#   // expect-clang: the message     (of clang in the place of the lines above: it shortens long strings)
#   // errors-at-most: 2             (nothing more after the message; counts the lines with "error:"; 1 without this line)

is_clang() { [[ ${versions_of_compilers[$1]:=$("$1" --version)} == *clang* ]]; }
declare -A versions_of_compilers

# meets_expectations CASE.cpp COMPILER OUTPUT: whether the output of the compiler has what the case expects. Prints the reason, or a summary.
meets_expectations() {
    local case_file=$1 compiler=$2 output=$3 expected flat message longer most errors
    lines_of() { sed -n "s|^// *$1: *||p" "$case_file"; }
    expected=$(lines_of expect)
    if is_clang "$compiler" && [ -n "$(lines_of expect-clang)" ]; then expected=$(lines_of expect-clang); fi
    [ -n "$expected" ] || { echo "$case_file has no line '// expect: ...'"; return 1; }
    grep -q '^#if.*WITH_ERROR' "$case_file" || { echo "$case_file has no '#ifdef WITH_ERROR'"; return 1; }

    # Ignores line breaks and repeated blanks of the compiler's layout, and the separators in a message that clang, which shortens
    # long strings, receives in pieces.
    flat=$(tr -s ' \n' '  ' <<<"$output" | sed -E "s/\"\}, FixedString<[0-9]+>\{\"//g; s/\\\\'/'/g")
    while IFS= read -r message; do
        case $flat in
            *"$message"*) ;;
            *) printf 'the compiler does not report: %s\nIts output:\n%s\n' "$message" "$output"; return 1 ;;
        esac
    done <<<"$expected"

    # g++ prints the inline namespace before every name: without flags for a processor it is only the version.
    if longer=$(grep -oE 'cupola::v[0-9]+_[0-9]+_[a-z0-9_]+' <<<"$output" | sort | uniq -c) && [ -n "$longer" ]; then
        printf 'names in the messages are longer than they need be:\n%s\n' "$longer"
        return 1
    fi

    most=$(lines_of errors-at-most)
    most=${most:-1}
    errors=$(grep -c 'error:' <<<"$output" || true)
    if [ "$errors" -gt "$most" ]; then
        printf '%s errors where at most %s were expected:\n%s\n' "$errors" "$most" "$output"
        return 1
    fi
    echo "fails to compile with the expected message, $errors errors in $(wc -l <<<"$output") lines"
}
