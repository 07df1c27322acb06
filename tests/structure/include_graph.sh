#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: include_graph.sh COMPILER FLAGS... . Fails if cupola.hpp or host.hpp includes, directly or not, a header that few programs need
# and that makes every compilation slower. Prints the chain of includes. Without separate compilation it also fails for the lists of what is
# compiled separately, and with it if src.hpp lacks the definitions of a header or the formula of a layer.
set -euo pipefail

forbidden='/(iostream|random|filesystem|regex|archive\.h|jpeglib\.h|doctest\.h|cxxopts\.hpp|sys/socket\.h|poll\.h)$|/nlohmann/|/CLI/|/protozero/'
# What is included by name, as the head of cupola.hpp says.
by_name='compiled_operations|compiled_training|data/augmentation|data/random_crop_flip|io/atomic_file|layers|losses|metrics'
by_name+='|layers/(adaptive_avg_pool2d|avg_pool1d|batch_norm1d|conv1d|conv_transpose2d|crop2d|drop_path|dropout2d|elu|embedding|from_bytes|gelu|group_norm|hard_swish)'
by_name+='|layers/(global_avg_pool1d|instance_norm2d|layer_norm|leaky_relu|max_pool1d|mish|on_device|option_a_shortcut|pad2d|permute|prelu|relu6|reshape|rms_norm)'
by_name+='|layers/(scale_channels|silu|softmax|softplus|upsample2d|upsample_bilinear2d)'
by_name+='|loss/(binary_cross_entropy|elementwise_loss|huber|mean_absolute_error|mean_squared_error|several_outputs|soft_cross_entropy|weighted_cross_entropy)'
by_name+='|metrics/[a-z0-9_/]+'
by_name+='|models/[a-z0-9_]+|net/(branches|frozen|name_table|named_values|summary|tied)|optimizers|optim/(adagrad|adamax|clipped|epochs|lamb|lars|nesterov_velocity|rate_scaling|rms_prop)'
by_name+='|optim/elastic_update|parallel/pipeline(/cut_diagnostic)?|parallel/(agreement|compressed|inspection|nccl_all_reduce|state_transfer|synchronized|training_state)'
by_name+='|train/stop_on_signal|processes/.*'
forbidden+="|/cupola/($by_name)\\.hpp\$"
list=$(printf '#include <cupola/cupola.hpp>\n#include <cupola/host.hpp>\n' | "$@" -fsyntax-only -H -x c++ - 2>&1)

grep -q '^\.* .*cupola/host\.hpp$' <<<"$list" || {
    echo "the list of includes could not be had:"
    head -n 20 <<<"$list"
    exit 1
}
# "-H" prints one dot per level: with each such header, print the includes above it.
awk -v forbidden="$forbidden" '
    /^\.+ / {
        depth = length($1); way[depth] = $2
        if ($2 ~ forbidden) {
            found = 1; text = $2
            for (level = depth - 1; level >= 1; --level) text = text "\n    from " way[level]
            print text
        }
    }
    END { exit found }' <<<"$list"

# Every .ipp is compiled by src.hpp, but those of MPI, which mpi_src.hpp compiles.
folder=$(sed -nE 's|^\.+ (.*cupola)/host\.hpp$|\1|p' <<<"$list" | head -n 1)
compiled=$(printf '#include <cupola/src.hpp>\n' | "$@" -DCUPOLA_SEPARATE_COMPILATION -M -x c++ - | tr -s ' \\' '\n')
missing=$(find "$folder" -name '*.ipp' -exec grep -L CUPOLA_MPI_DECL {} + | grep -vxFf <(grep '\.ipp$' <<<"$compiled") || true)
[ -z "$missing" ] || { printf 'src.hpp does not include these definitions:\n%s\n' "$missing"; exit 1; }
missing=$(sed -nE 's/^struct ([A-Za-z0-9]+Formula) \{$/LISTED(\1)/p' "$folder"/layers/*.hpp |
    grep -vFf <(grep -oE 'LISTED\([A-Za-z0-9]+Formula\)' "$folder/compiled_operations.hpp") || true)
[ -z "$missing" ] || { printf 'compiled_operations.hpp does not list these formulas:\n%s\n' "$missing"; exit 1; }
