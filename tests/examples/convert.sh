#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: convert.sh CONVERT CIFAR10_TRAIN. Checks that convert writes each format from each format without a change of the weights, and
# that its errors are one message.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
train=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

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
for model in transposed_unet resnet18 resnet34 resnet50 vgg16 mobilenet_v2 convnext_tiny efficientnet_lite0 timm/vgg16 timm/mobilenetv2_100 timm/tf_efficientnet_lite0 timm/convnext_tiny tutorial \
    resnet44 resnet50/v2 mobilenet_v2/v2; do
    grep -q "$model" output || fail "--help does not name $model"
done

# A network of timm's: a file with the network's own names becomes one with timm's, and back. What the weights were trained with is that of
# the model.
python3 "$here/make_efficientnet.py" own.safetensors 7
trains --model efficientnet_lite0 --classes 7 --in own.safetensors --out own.pth
timm="--model timm/tf_efficientnet_lite0 --classes 7"
trains $timm --in own.safetensors --out timm.pth
grep -q blocks.1.0.conv_pw.weight timm.pth || fail "timm's file has not timm's names"
! grep -q _conv_stem timm.pth || fail "timm's file has the network's names"
trains $timm --in timm.pth --out again.pth
cmp timm.pth again.pth || fail "timm's names change"
trains $timm --in timm.pth --out back.safetensors
trains $timm --in back.safetensors --out again.pth
cmp timm.pth again.pth || fail "a checkpoint of timm's weights is not read as timm's model"
trains --model efficientnet_lite0 --classes 7 --in back.safetensors --out back.pth
cmp own.pth back.pth || fail "the weights change on the way through timm's names"
refuses 'its _fc.weight is [7,1280], and this network'"'"'s is 1000 x 1280' --model efficientnet_lite0 --in own.pth --out x.onnx
refuses 'own.pth has no tensor conv_stem' --model timm/mobilenetv2_100 --in own.pth --out x.onnx
refuses 'it has no tensor _conv_stem.weight' --model efficientnet_lite0 --classes 7 --in timm.pth --out x.onnx
trains --model efficientnet_lite0 --classes 7 --in back.safetensors --out own.onnx
trains $timm --in timm.pth --out timm.onnx
grep -q 'TensorFlow efficientnet-lite0' own.onnx && grep -q 'timm tf_efficientnet_lite0.in1k' timm.onnx ||
    fail "the ONNX files have not the preprocessing of their models"

# A network whose last layer has channels. The weights are zeros, of which the file has none.
python3 - unet.safetensors <<'END'
import json, struct, sys
shapes = {}
def double(name, inputs, outputs):
    for i, channels in ((0, inputs), (3, outputs)):
        shapes[f"{name}.double_conv.{i}.weight"] = [outputs, channels, 3, 3]
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.double_conv.{i + 1}.{part}"] = [outputs]
double("inc", 3, 64)
for i in range(1, 5):
    double(f"down{i}.maxpool_conv.1", 32 << i, 64 << i)
    inputs = 2048 >> i
    shapes[f"up{i}.up.weight"], shapes[f"up{i}.up.bias"] = [inputs, inputs // 2, 2, 2], [inputs // 2]
    double(f"up{i}.conv", inputs, inputs // 2)
shapes["outc.conv.weight"], shapes["outc.conv.bias"] = [1, 64, 1, 1], [1]
header, end = {}, 0
for name, shape in shapes.items():
    begin, size = end, 4
    for extent in shape:
        size *= extent
    end += size
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.truncate(8 + len(text) + end)
END
trains --model transposed_unet --classes 1 --in unet.safetensors --out unet.onnx
refuses 'its outc.conv.weight is [1, 64, 1, 1], and this network'"'"'s is 2 x 64 x 1 x 1' --model transposed_unet --in unet.safetensors --out x.onnx
rm unet.*

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
