#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: profile.sh CIFAR10_TRAIN. Checks that --profile prints a table of the time of a step for any network and ends without training:
# each operation forward and backward, the work around them, and the peak rates of the rooflines.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"

trains --profile --batch-size 8 --threads-per-device 1
[ -z "$(losses)" ] || fail "a line of the log"
! grep -q 'test accuracy' "$work/output" || fail "an accuracy"
for pass in forward backward; do
    for operation in 'conv1 .*Conv2d<64, 5>' 'conv2 .*Conv2d<64, 5>' 'local3 .*Linear<384> [+] ReLU' 'softmax_linear .*Linear<10>' ; do
        [ "$(grep -Ec "^$operation.* $pass +[0-9.]+ +[0-9.]+ %" "$work/output")" = 1 ] || fail "not one row for $operation, $pass"
    done
    grep -Eq "LocalResponseNorm<4>.* $pass " "$work/output" || fail "no row of a normalisation, $pass"
done
for part in "regularisers' losses" data 'packing of weights' loss 'check of the gradient' optimiser 'moving average' 'the rest' total; do
    grep -Eq "^ *$part +[0-9.]+ +[0-9.]+ %" "$work/output" || fail "no row of: $part"
done
grep -Eq '^step: [0-9.]+ ms, [0-9.]+ samples/s; medians of 20 steps on the first device$' "$work/output" || fail "no sum"
grep -Eq '^peak: [1-9][0-9.]* GFLOP/s of a large matrix product, [0-9.]+ of vectors, [0-9.]+ GB/s of a large copy(, [0-9.]+ in caches of [0-9.]+ MiB)*$' "$work/output" || fail "no rates"

for cut in 'SplitAt<Net, "[a-z0-9_]+"> is the best of 2' 'SplitAt<Net, "conv2", "local3"> is the best of 3'; do
    grep -Eq "^cut: $cut parts: the longest has [1-3]\.[0-9]+ of the mean time\$" "$work/output" || fail "no line: $cut"
done

trains --profile --batch-size 4 --num-replicas 2 --num-devices 2 --threads-per-device 1
grep -Eq '^ +averaging +[0-9.]+ ' "$work/output" || fail "no row of the averaging"
grep -Eq '^ +waiting for other devices +[0-9.]+ ' "$work/output" || fail "no row of the waiting"

trains --profile --model resnet --batch-size 2 --threads-per-device 1
[ "$(grep -Ec 'BatchNorm2d.* backward ' "$work/output")" -ge 40 ] || fail "not every normalisation of the ResNet"
[ "$(grep -Ec '^cut: SplitAt<Net, "layer[123][.0-9]*".* is the best of [234] parts: ' "$work/output")" = 3 ] || fail "not three cuts"
grep -Eq '^ +running statistics +[0-9.]+ ' "$work/output" || fail "no row of the running statistics"
echo "$checks runs"
