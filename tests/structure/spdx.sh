#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: spdx.sh SOURCE_DIR. Fails with the name of each source file whose first lines do not name the licence.
set -euo pipefail
cd "$1"

find . \( -path ./build -o -path ./.deps -o -path ./.git -o -path ./.cache \) -prune -o -type f \
    \( -name '*.hpp' -o -name '*.ipp' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' -o -name '*.cmake' -o -name '*.in' -o -name '*.sh' \
    -o -name '*.py' -o -name '*.txt' -o -name run -o -name .clang-format -o -name .clang-tidy -o -name .gitignore \) -print |
    awk '{
        named = 0
        for (line = 1; line <= 3 && (getline text <$0) > 0; line++)
            if (index(text, "SPDX-License-Identifier: Apache-2.0")) named = 1
        close($0)
        checked++
        if (!named) { print $0 ": no SPDX line"; errors++ }
    }
    END { print checked + 0 " files checked, " errors + 0 " without"; exit checked == 0 || errors > 0 }'
