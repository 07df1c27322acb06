#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: download.sh CIFAR10_DOWNLOAD. Downloads from correct and faulty servers on this machine. The data set is complete or absent, an
# interrupted download is resumed, and a wrong checksum and an archive with paths outside the folder are rejected with one message.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
here=$(dirname "${BASH_SOURCE[0]}")

mkdir "$work/server"
python3 "$here/make_archives.py" "$work/server" >"$work/sums" || fail "the archives could not be made"
sha() { awk -v name="$1" '$1 == name { print $2 }' "$work/sums"; }
md5() { awk -v name="$1" '$1 == name { print $3 }' "$work/sums"; }
mkfifo "$work/port" "$work/life"
exec 9<>"$work/life"  # the servers end with this test
# serve LOG: starts a server and sets $site to its address.
serve() {
    python3 "$here/broken_server.py" "$work/server" "$1" <"$work/life" 9>&- >"$work/port" &
    read -r port <"$work/port"
    site=http://127.0.0.1:$port
}
export no_proxy='*'

data=$work/data
folder=$data/cifar-10-batches-bin
part=$data/cifar-10-binary.tar.gz.part
fresh() { rm -rf "$data"; : >"$work/requests"; }
whole() {
    [ "$(ls "$data")" = cifar-10-batches-bin ] || fail "not only the data set is left: $(ls -A "$data")"
    [ "$(cat "$folder"/{data_batch_{1..5},test_batch}.bin | wc -c)" = $((120 * 3073)) ] || fail "the data set is not whole"
}
# Checks that only the file remains from which the next download continues.
nothing() { [ ! -e "$folder" ] && [ -z "$(ls -A "$data" | grep -v '\.part$')" ] || fail "something is left: $(ls -A "$data")"; }
nothing_at_all() { [ -z "$(ls -A "$data")" ] || fail "something is left: $(ls -A "$data")"; }
good="--data-dir $data --sha256 $(sha good)"

# The downloads from a server that fails every time: each makes pauses of 12 seconds in total, so they run in the background, each with a folder
# of its own.
serve "$work/slow_requests"
for slow in stop/good always/good status/503; do
    name=${slow//\//_}
    {
        status=0
        "$program" --data-dir "$work/$name" --sha256 "$(sha good)" --url "$site/$slow" >"$work/$name.output" 2>"$work/$name.errors" 9>&- || status=$?
        echo $status >"$work/$name.status"
    } &
    slow_tries+=($!)
done
slow_site=$site
# gave_up FOLDER 'WORDS': checks a download that was begun above, as `refuses` does, and sets $data to its folder.
gave_up() {
    data=$work/$1 status=$(cat "$work/$1.status")
    cp "$data.output" "$work/output"
    cp "$data.errors" "$work/errors"
    refused "$2" "--url $slow_site/${1//_/\/}"
}
serve "$work/requests"

# From a file and from a server; a second run finds the data set and downloads nothing.
fresh
trains $good --url "file://$work/server/good"
whole
grep -q "^$folder: 100 training and 20 test images$" "$work/output" || fail "no message with the number of images"
fresh
trains $good --url "$site/good/good"
whole
trains $good --url "$site/good/good"
grep -q "^$folder exists already: 100 training and 20 test images$" "$work/output" || fail "no message that it is there"
[ "$(cat "$work/requests")" = '/good/good 0' ] || fail "it was downloaded again"
fresh
trains --data-dir "$data/deep/er" --url "$site/moved/good" --md5 "$(md5 good | tr a-f A-F)"
[ -f "$data/deep/er/cifar-10-batches-bin/test_batch.bin" ] || fail "nothing came from where the archive has moved"

# JSON; and on a terminal the downloaded part and the remaining time.
fresh
trains $good --url "$site/good/good" --json
python3 -c 'import json, sys
lines = [json.loads(line)["message"] for line in open(sys.argv[1])]
assert len(lines) == 3 and lines[-1].endswith(": 100 training and 20 test images"), lines' "$work/output" || fail "a line is no JSON object"
fresh
python3 - "$program" $good --url "$site/break/good" >"$work/terminal" <<'END' || fail "the download failed in a terminal"
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
try:
    while piece := os.read(terminal, 4096):
        sys.stdout.buffer.write(piece)
except OSError:  # its other end is closed
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
END
whole
grep -Eqa ' 50 % of [0-9.]+ kB, 0:00:[0-9]{2} left|[0-9]+ % of [0-9.]+ [kM]B, 0:[0-9]{2}:[0-9]{2} left' "$work/terminal" || fail "no share and time left in a terminal"

# Interrupted connections: only the rest is requested, never the whole file again.
fresh
trains $good --url "$site/break/good"
whole
[ "$(sed -n 's|^/break/good ||p' "$work/requests" | head -n 3 | xargs)" = '0 100000 200000' ] || fail "it did not go on: $(cat "$work/requests")"
fresh
mkdir "$data"
head -c 70000 "$work/server/good" >"$part"
trains $good --url "file://$work/server/good"
whole
# A server without ranges; an archive that was complete already; a file that is longer than the archive.
fresh
mkdir "$data"
head -c 70000 "$work/server/good" >"$part"
trains $good --url "$site/norange/good"
whole
fresh
for url in "$site/good/good" "file://$work/server/good"; do
    fresh
    mkdir "$data"
    cp "$work/server/good" "$part"
    trains $good --url "$url"
    whole
done
fresh
mkdir "$data"
cat "$work/server/good" "$work/server/text" >"$part"
refuses ' has the SHA-256 ' $good --url "$site/good/good"
nothing_at_all
trains $good --url "$site/good/good"
whole

# Begins a download that stops in the middle; $loader is its process.
begins() {
    "$program" $good --url "$site/hang/good" >/dev/null 2>&1 &
    loader=$!
    local try
    for try in $(seq 600); do
        [ "$(stat -c %s "$part" 2>/dev/null || echo 0)" = 50000 ] && return
        sleep 0.1
    done
    fail "the download never came so far"
}

# A process that is killed during the download; a second process at the same time is rejected.
fresh
begins
refuses "$part is in use by another process" $good --url "$site/good/good"
[ "$(stat -c %s "$part")" = 50000 ] || fail "the second process spoilt the first one's file"
kill -KILL $loader
wait $loader 2>/dev/null || true
mkdir "$folder.part-1234"  # and a process that was killed while it unpacked
trains $good --url "$site/good/good"
whole
[ "$(tail -n 1 "$work/requests")" = '/good/good 50000' ] || fail "it did not go on after it was killed"

# The processes of one training: one of them downloads, and the others wait, also for a process that is killed.
fresh
waiting=()
for process in 1 2 3 4; do
    "$program" $good --wait --url "$site/good/good" >"$work/waiting-$process" 2>&1 &
    waiting+=($!)
done
for process in 1 2 3 4; do
    wait "${waiting[process - 1]}" || fail "process $process of four does not wait: $(cat "$work/waiting-$process")"
done
whole
[ "$(wc -l <"$work/requests")" -eq 1 ] || fail "not one of four processes downloaded: $(cat "$work/requests")"
fresh
begins
"$program" $good --wait --url "$site/good/good" >"$work/waiting-1" 2>&1 &
waiting=$!
kill -KILL $loader
wait $loader 2>/dev/null || true
wait $waiting || fail "the process that waited does not go on: $(cat "$work/waiting-1")"
whole
[ "$(tail -n 1 "$work/requests")" = '/good/good 50000' ] || fail "the process that waited does not continue the download"

# An archive that the user provides.
fresh
mkdir "$data"
cp "$work/server/good" "$data/cifar-10-binary.tar.gz"
trains $good --url "$site/status/404"
[ -f "$folder/test_batch.bin" ] && [ -f "$data/cifar-10-binary.tar.gz" ] || fail "the archive that was there is not used, or gone"
[ ! -s "$work/requests" ] || fail "something was downloaded"
fresh
mkdir "$data"
cp "$work/server/text" "$data/cifar-10-binary.tar.gz"
refuses "$data/cifar-10-binary.tar.gz has the SHA-256 $(sha text), not $(sha good); remove it" $good --url "$site/good/good"
[ -f "$data/cifar-10-binary.tar.gz" ] || fail "a file of the user's was removed"

# Wrong checksums: the message has both; without a flag, the author's checksum is used.
fresh
refuses "the file from $site/good/text has the SHA-256 $(sha text), not $(sha good); it was removed" $good --url "$site/good/text"
[ "$status" = 1 ] && [ -z "$(ls -A "$data")" ] || fail "the wrong file was not removed"
refuses " has the MD5 $(md5 good), not $(md5 text)" --data-dir "$data" --url "$site/good/good" --md5 "$(md5 text)"
refuses " has the MD5 $(md5 good), not $(md5 text)" $good --url "$site/good/good" --md5 "$(md5 text)"
refuses ', not c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd; it was removed' --data-dir "$data" --url "$site/good/good"

# Servers that do not send the archive.
refuses "$site/good/missing cannot be downloaded: the server answered with status 404" $good --url "$site/good/missing"
refuses 'http://127.0.0.1:1/x cannot be downloaded: ' $good --url http://127.0.0.1:1/x
refuses 'http://no.such.host.invalid/x cannot be downloaded: ' $good --url http://no.such.host.invalid/x
refuses 'file:///no/such/file cannot be downloaded: ' $good --url file:///no/such/file
refuses 'cannot be downloaded: ' $good --url ftp://127.0.0.1/x
refuses "file://$work/server/nothing is empty" $good --url "file://$work/server/nothing"
[ -z "$(ls -A "$data")" ] || fail "something is left: $(ls -A "$data")"

# Archives with the right checksum that are not the data set: none of their files remains, here or elsewhere.
refuses_archive() {
    fresh
    refuses "$2" --data-dir "$data" --url "file://$work/server/$1" --sha256 "$(sha "$1")"
    grep -q "; $part was removed$" "$work/errors" || fail "no message that the archive was removed"
    nothing_at_all
    [ -z "$(find "$work" -name evil)" ] && [ ! -e /tmp/cupola-evil ] || fail "the archive $1 wrote elsewhere"
}
refuses_archive cut "$part is damaged or is not an archive: "
refuses_archive text "$part is damaged or is not an archive: "
refuses_archive empty "$part contains no files"
for name in above through absolute deeper beside symlink hardlink; do
    refuses_archive $name "evil, which is not a plain file in cifar-10-batches-bin/: nothing was unpacked"
done
refuses_archive many "$part contains more than 100 files: nothing was unpacked"
refuses_archive bomb "$part unpacks to more than 1000000000 bytes: nothing was unpacked"
refuses_archive label 'data_batch_3.bin has label 10 in record 0'
refuses_archive short 'test_batch.bin does not exist'

# An archive that the user provides is not removed.
fresh
mkdir "$data"
cp "$work/server/cut" "$data/cifar-10-binary.tar.gz"
refuses "$data/cifar-10-binary.tar.gz is damaged or is not an archive: " --data-dir "$data" --sha256 "$(sha cut)"
[ "$(ls -A "$data")" = cifar-10-binary.tar.gz ] || fail "the user's archive is gone, or something is left: $(ls -A "$data")"
# The files of a process that was killed after it had finished.
fresh
trains $good --url "$site/good/good"
cp "$work/server/good" "$part"
trains $good --url "$site/good/good"
whole

# A damaged data set of the user is not removed.
fresh
trains $good --url "$site/good/good"
truncate -s -1 "$folder/data_batch_2.bin"
refuses "$folder/data_batch_2.bin is truncated" $good --url "$site/good/good"
grep -q "; remove $folder to download it again$" "$work/errors" || fail "no message says what to do"
[ -f "$folder/test_batch.bin" ] || fail "the user's files are gone"

# A limit on the size of files is an error; its signal does not end the program.
fresh
through='prlimit --fsize=50000'
refuses "$part cannot be written: File too large, after 50000 bytes" $good --url "$site/good/good"
nothing
through=
trains $good --url "$site/good/good"
whole

# Places that cannot be written: a full disk at the download and at the unpacking, a folder of another user.
fresh
mkdir "$data"
ln -s /dev/full "$part"
refuses "$part cannot be written: No space left on device" $good --url "$site/good/good"
fresh
: >"$data"
refuses " cannot be created: " --data-dir "$data/below" --sha256 "$(sha good)" --url "$site/good/good"
refuses "$data" --data-dir "$data" --sha256 "$(sha good)" --url "$site/good/good"
rm "$data"
if unshare -rm mount -t tmpfs none /mnt 2>/dev/null; then
    mkdir "$data"
    cat >"$work/small_disk" <<END
mount -t tmpfs -o size=$(($(stat -c %s "$work/server/good") / 1024 + 200))k none "$data" && cp "$work/server/good" "$part" || exit 99
"$program" $good --url "$site/good/good"
status=\$?
ls -A "$data"
exit \$status
END
    status=0
    unshare -rm bash "$work/small_disk" >"$work/output" 2>"$work/errors" || status=$?
    [ "$status" = 1 ] || fail "exit status $status with a full disk"
    grep -q '^cifar10_download: .* cannot be written: No space left on device$' "$work/errors" || fail "no message that the disk is full"
    [ "$(tail -n 1 "$work/output")" = cifar-10-binary.tar.gz.part ] || fail "something is left on a full disk"
    checks=$((checks + 1))
else
    echo "not tested, for this user may not mount: a disk that fills up while the archive is unpacked"
fi
fresh
mkdir -m 555 "$data"
as_other_user 'a folder that may not be written' refuses "$part cannot be written: Permission denied" $good --url "$site/good/good"

# Flags.
refuses '--sha256: 12ab is not 64 hexadecimal digits' --sha256 12ab
refuses '--md5: xyz is not 32 hexadecimal digits' --md5 xyz
refuses '--data-dir: the path is empty' --data-dir ''
refuses '--url: the address is empty' --url ''
refuses 'surplus' surplus
trains --help
for flag in --data-dir --url --sha256 --md5 --json; do grep -q -- "$flag" "$work/output" || fail "--help does not name $flag"; done

# The downloads that were begun first.
wait "${slow_tries[@]}"
gave_up status_503 'the server answered with status 503'
[ "$(grep -c '^/status/503 ' "$work/slow_requests")" -gt 1 ] || fail "a server that is busy is asked once only"
gave_up always_good 'this server does not send parts of a file: the next attempt starts from the beginning'
nothing_at_all
gave_up stop_good '50000 bytes are kept, and the next attempt continues from them'
folder=$data/cifar-10-batches-bin
nothing
trains --data-dir "$data" --sha256 "$(sha good)" --url "$slow_site/good/good"
whole
grep -q ': resuming after 50.0 kB' "$work/output" || fail "no message that it goes on"
[ "$(tail -n 1 "$work/slow_requests")" = '/good/good 50000' ] || fail "it did not go on: $(cat "$work/slow_requests")"
echo "$checks downloads"
