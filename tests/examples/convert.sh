#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: convert.sh CONVERT CIFAR10_TRAIN. Checks that convert writes each format from each format without a change of the weights, and
# that its errors are one message.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
train=$2

"$train" --batch-size 8 --max-steps 1 --ema-decay 0.5 --summary-every 0 --log-every 0 --train-dir "$work/run" >"$work/train.out" 2>&1 ||
    fail "the training failed: $(tail -n 1 "$work/train.out")"
checkpoint=$work/run/model-1.safetensors
cd "$work"
trains --model tutorial --in "$checkpoint" --out first.pth
trains --model tutorial --in first.pth --out second.safetensors
trains --model tutorial --in second.safetensors --out second.pt
cmp first.pth second.pt || fail "the weights change"
trains --model tutorial --in "$checkpoint" --out first.onnx
trains --model tutorial --in first.pth --out second.onnx
cmp first.onnx second.onnx || fail "the ONNX file depends on the format of the weights"
grep -q softmax_linear.weight first.onnx || fail "the ONNX file has no weights"
trains --model tutorial --in first.pth --out nhwc.onnx --nhwc
cmp -s first.onnx nhwc.onnx && fail "--nhwc changes nothing"
trains --help
for model in resnet18 resnet34 resnet50 vgg16 mobilenet_v2 convnext_tiny efficientnet_lite0 timm/vgg16 timm/mobilenetv2_100 timm/tf_efficientnet_lite0 tutorial \
    resnet44 resnet50/v2 mobilenet_v2/v2; do
    grep -q "$model" output || fail "--help does not name $model"
done

refuses 'its softmax_linear.weight is [10,192], and this network'"'"'s is 5 x 192' --model tutorial --classes 5 --in first.pth --out x.onnx
refuses 'first.pth is a checkpoint of another network' --model resnet18 --in first.pth --out x.onnx
refuses 'first.pth has no tensor conv_stem.*, which the entry conv_stem.* -> features.0.0.*' --model timm/mobilenetv2_100 --in first.pth --out x.onnx
refuses 'first.pth has no tensor conv_stem.*, which the entry conv_stem.* -> _conv_stem.*' --model timm/tf_efficientnet_lite0 --in first.pth --out x.onnx
refuses 'first.pth has no tensor pre_logits.fc1.weight' --model timm/vgg16 --in first.pth --out x.onnx
refuses 'none.pth does not exist' --model tutorial --in none.pth --out x.onnx
refuses 'alexnet not in {resnet18,' --model alexnet --in first.pth --out x.onnx
refuses 'x.h5 does not end with .onnx, .safetensors, .pth or .pt' --model tutorial --in first.pth --out x.h5
refuses '0 is not a whole number from 1 to' --model tutorial --classes 0 --in first.pth --out x.onnx
refuses '--nhwc is for an .onnx file, and --out is x.pth' --model tutorial --in first.pth --out x.pth --nhwc
refuses '--out is required' --model tutorial --in first.pth
[ ! -e x.onnx ] && [ ! -e x.pth ] || fail "an error leaves a file"
echo "$checks runs"
