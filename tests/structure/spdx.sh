#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: spdx.sh SOURCE_DIR. Fails with the name of each source file whose first lines do not name the licence.
set -euo pipefail
cd "$1"

checked=0 errors=0
while IFS= read -r -d '' file; do
    checked=$((checked + 1))
    if ! head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0'; then
        echo "$file: no SPDX line"
        errors=$((errors + 1))
    fi
done < <(find . \( -path ./build -o -path ./.deps -o -path ./.git -o -path ./.cache \) -prune -o -type f \
    \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' -o -name '*.cmake' -o -name '*.in' -o -name '*.sh' \
    -o -name '*.py' -o -name '*.txt' -o -name run -o -name .clang-format -o -name .clang-tidy -o -name .gitignore \) -print0)

echo "$checked files checked, $errors without"
[ "$checked" -gt 0 ] && [ "$errors" -eq 0 ]
