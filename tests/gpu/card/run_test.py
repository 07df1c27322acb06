#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tests/gpu/run and tests/gpu/report without a GPU: the messages, the time limits of the stages, what becomes of processes, the
programs that are carried, the computation of rooflines and goals, programs that take turns, and the page of a synthetic run."""

import argparse
import contextlib
import dataclasses
import importlib.machinery
import importlib.util
import io
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import unittest
import unittest.mock
import warnings

HERE = pathlib.Path(__file__).resolve().parents[1]  # the commands; what they need is in card/
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE / "card"))

import carried  # noqa: E402
import descendants  # noqa: E402
import stages  # noqa: E402
import two_processes  # noqa: E402
from bench import roofline, measure, side_by_side  # noqa: E402

sys.path.append(str(HERE.parent / "benchmarks/recipes"))
import train as recipe_runner  # noqa: E402


def load(name):
    loader = importlib.machinery.SourceFileLoader(f"gpu_{name}", str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(f"gpu_{name}", loader))
    loader.exec_module(module)
    return module


run = load("run")


class Folder(run.Programs):
    """Programs that are all in one folder, as tests/gpu/run finds those that were carried."""

    def __init__(self, folder, **manifest):
        super().__init__(folder, None)
        self.manifest, self.unfit = manifest, {}

    def path(self, name):
        return self.folder / name


class InFolder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


def settings_for(folder, **more):
    return argparse.Namespace(build=folder / "build", carried=folder / "carried", data=None, recipe="tutorial", anyway=True, emulated=False, **more)


def stages_of(command, folder=pathlib.Path("o"), **more):
    settings = argparse.Namespace(**{**vars(settings_for(folder)), **more})
    return run.stages_of(command, None, folder, settings, Folder(folder), measure.Measured(Folder(folder), folder, folder))


def script(path, code, python=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable if python else '/bin/sh'}\n{code}\n")
    path.chmod(0o755)


def ended(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def has_gpu():
    return shutil.which("nvidia-smi") is not None and ended("nvidia-smi").returncode == 0


class WithoutGpu(unittest.TestCase):
    @unittest.skipIf(has_gpu(), "there is a GPU here")
    def test_each_command_says_so_in_one_message(self):
        for command in ("all", "check", "bench"):
            with self.subTest(command), tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "out"
                run = ended(HERE / "run", out, command, "--commit", "abc", "--build", f"{folder}/build/gpu")
                self.assertEqual((run.returncode, run.stderr), (1, ""), run.stdout)
                report = json.loads((out / "report.json").read_text())
                self.assertEqual((report["command"], report["commit"]), (command, "abc"))
                machine, *others = report["stages"]
                self.assertEqual({(stage["status"], stage["reason"]) for stage in others}, {("skipped", "'machine' did not pass")})
                self.assertEqual((machine["name"], machine["status"]), ("machine", "failed"))
                self.assertRegex(machine["reason"], r"^there is no NVIDIA GPU here that can be used: nvidia-smi [^.]*$")
                text = (out / "report.txt").read_text()
                self.assertIn(machine["reason"], text)
                self.assertTrue(run.stdout.endswith(text + "\n"))
                self.assertLessEqual(sum(1 for path in out.rglob("*") if path.is_file()), 8)


class OnTheEmulator(InFolder):
    """What is tried of `--emulated` without the emulator's programs, which have a test that runs them."""

    def run_with(self, *words):
        out = self.folder / "out"
        run = ended(HERE / "run", out, *words, "--build", self.folder)
        report = out / "report.json"
        return run, json.loads(report.read_text()) if report.exists() else None

    def test_programs_that_were_not_built_are_named_with_how_to_build_them(self):
        run, said = self.run_with("first", "--emulated")
        self.assertEqual((run.returncode, run.stderr), (1, ""))
        machine, *others = said["stages"]
        self.assertRegex(machine["reason"], r"has no emulated_bench_step_bfloat16, test_emulated_kernels, test_emulated_training: cmake --preset dev && .*"
                         r" --target emulated_bench_step_bfloat16 test_emulated_kernels test_emulated_training$")  # fmt: skip
        self.assertEqual({stage["reason"] for stage in others}, {"'machine' did not pass"})

    def test_only_what_it_has_is_tried(self):
        for words, text in ((("bench", "--emulated"), "--emulated tries all or first, not bench"), (("all", "--tests", "x"), "--tests is for --emulated")):
            run, said = self.run_with(*words)
            self.assertEqual((run.returncode, said), (2, None))
            self.assertIn(text, run.stderr)

    def test_its_stages_are_those_of_a_card_with_limits_that_no_slow_machine_reaches(self):
        for command in ("all", "first"):
            card, emulated = {stage.name: stage for stage in stages_of(command)}, stages_of(command, emulated=True)
            names = [stage.name for stage in emulated]
            self.assertEqual([name for name in card if name in names], names)
            for stage in emulated:
                self.assertGreaterEqual(stage.limit, 100 * card[stage.name].limit)
        plan = self.run_with("all", "--emulated", "--plan")[0].stdout.splitlines()
        self.assertRegex(plan[-1], f"^of {100 * stages.TOTAL_SECONDS} s, ")
        # And none of those within a stage: a test has so long, and a program whose turn it is.
        given, tests = [], [{"name": "gpu/training", "program": "p", "arguments": [], "alone": False}]
        programs = types.SimpleNamespace(tests=lambda: tests, has=lambda _: True, build=self.folder)
        with unittest.mock.patch.object(run, "one_test", lambda test, _, seconds, quiet: given.append((seconds, quiet)) or ([{"name": "t", "status": "passed"}], "")):
            settings = argparse.Namespace(**{**vars(settings_for(self.folder)), "emulated": True})
            made = run.stages_of("all", None, self.folder, settings, programs, measure.Measured(programs, self.folder, self.folder))
            next(stage for stage in made if stage.name == "trainings against Host").body(1e6)
        self.assertEqual(given, [(100 * 120, None)])
        code = "import sys; sys.path.insert(0, sys.argv[1]); from bench import measure; before = measure.LONGEST_TURN; measure.emulate()\n"
        self.assertEqual(ended(sys.executable, "-c", f"{code}print(measure.LONGEST_TURN / before)", HERE / "card").stdout, "100.0\n")

    def test_its_page_is_no_measurement_and_goes_nowhere(self):
        report = load("report")
        data = {"format": stages.FORMAT, "command": "all", "commit": "abc", "started": "2026-01-02T03:04:05Z", "ended": True, "seconds": 9.0,
                "machine": {"GPU": "Emulated GPU"}, "stages": [{"name": "machine", "status": "passed"}], "emulated": True}  # fmt: skip
        (self.folder / "report.json").write_text(json.dumps(data))
        text = report.write(self.folder, self.folder).read_text()
        self.assertIn("# On an emulated GPU: a trial of the command, and no measurement", text)
        self.assertNotIn("measured on", text)
        with self.assertRaisesRegex(report.Refused, "is of an emulated GPU: it has no measurements"):
            report.write(self.folder, self.folder.parent)


class Stages(InFolder):
    def setUp(self):
        super().setUp()
        quiet = contextlib.redirect_stdout(io.StringIO())
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)

    def test_what_later_stages_need_is_kept_for_them(self):
        for command in ("all", "first", "check", "bench", "recipe"):
            made = stages_of(command)
            self.assertTrue(all(stage.least <= stage.limit for stage in made))
            self.assertLessEqual(sum(stage.least for stage in made), stages.TOTAL_SECONDS)
            planned = run.plan_of(made)
            self.assertEqual(len(planned), len(made) + 2)
            self.assertLessEqual(float(planned[-2].split()[-1]), stages.TOTAL_SECONDS)
            self.assertEqual(made[0].name, "machine")
            if command == "first":  # five minutes, where all programs were carried
                self.assertLessEqual(sum(stage.limit for stage in made if not stage.name.startswith("build")), 300)
        # Within nine minutes, with the end of what the last stage has started.
        self.assertLessEqual(stages.TOTAL_SECONDS + 10, 540)

    def test_a_command_builds_the_programs_that_its_stages_start(self):
        self.assertEqual(set(run.targets_of("all")), set(carried.PROGRAMS) - {"cifar10_train"})
        checked = {"test_gpu_ops", "test_cuda_host", "test_gpu_training", "test_step_calls", "two_processes", "bench_machine"}
        self.assertEqual(set(run.targets_of("check")), checked)
        self.assertEqual({name.startswith("bench_") for name in run.targets_of("bench")}, {True})
        self.assertEqual(set(run.targets_of("first")), {"test_gpu_ops", "test_cuda_host", "bench_machine", "bench_step_bfloat16"})

    def test_only_the_gpu_of_the_machine_is_needed(self):
        for name, code in (("nvidia-smi", NVIDIA_SMI), ("nvcc", "/bin/sleep 60"), ("c++", "echo a compiler"), ("cmake", "exit 3")):
            script(self.folder / "tools" / name, code, python=False)
        (self.folder / "tools/cmake").write_text("no program")
        report = stages.Report(self.folder, "check", "abc")
        begin = time.monotonic()
        with unittest.mock.patch.dict(os.environ, PATH=str(self.folder / "tools")):
            run.machine(report, 3)
            self.assertLess(time.monotonic() - begin, 20)
            facts = report.data["machine"]
            self.assertRegex(facts["nvcc"], r"^nvcc said nothing for \d s$")
            self.assertEqual((facts["compiler"], facts["CMake"]), ("a compiler", "cmake could not be started: Exec format error"))
            script(self.folder / "tools/nvidia-smi", "/bin/sleep 60", python=False)
            with self.assertRaisesRegex(stages.Failed, "there is no NVIDIA GPU here that can be used: nvidia-smi says 'nvidia-smi said nothing for"):
                run.machine(report, 1)

    def test_a_process_that_cannot_be_killed_does_not_hang_the_run(self):
        kept = []
        warnings.simplefilter("ignore", ResourceWarning)  # of processes that are left
        self.addCleanup(warnings.resetwarnings)
        with unittest.mock.patch.object(descendants, "end_command", lambda pid, mark: kept.append((pid, mark))), \
                unittest.mock.patch.object(stages, "END_SECONDS", 0.2):  # fmt: skip
            begin = time.monotonic()
            with self.assertRaises(subprocess.TimeoutExpired):
                stages.run(["sleep", "20"], 0.2)
            self.assertLess(time.monotonic() - begin, 10)
            program = side_by_side.Program("the peer", [sys.executable, "-c", "import os, time; os.close(1); time.sleep(20)"], self.folder / "log")
            with self.assertRaisesRegex(side_by_side.Stopped, "the peer has closed its output and did not end"):
                program.ready(1)
            program.stop()
            self.assertLess(time.monotonic() - begin, 15)
        self.assertEqual(len(kept), 2)
        for pid, mark in kept:
            self.assertEqual(descendants.end_command(pid, mark), set())

    def test_memcheck_reports_no_errors_of_calls_that_may_fail(self):
        script(self.folder / "tools/compute-sanitizer", """
import sys
if "--help" in sys.argv: print("--kernel-regex --report-api-errors"); sys.exit()
print(*sys.argv[1:]); print("========= ERROR SUMMARY: 0 errors"); print("[doctest] test cases: 3 | 3 passed")""")
        script(self.folder / "test_gpu_ops", "")
        with unittest.mock.patch.dict(os.environ, PATH=f"{self.folder / 'tools'}{os.pathsep}{os.environ['PATH']}"):
            for tool in ("memcheck", "racecheck"):
                log = self.folder / f"{tool}.log"
                self.assertEqual(run.sanitizer(tool, Folder(self.folder), log, 10)["filter"], "--kernel-regex kns=cupola")
                self.assertEqual("--report-api-errors no" in log.read_text(), tool == "memcheck")

    def test_the_order_is_tests_first_and_measurements_without_other_load(self):
        names = [stage.name for stage in stages_of("all")]
        order = [
            "machine", "carried programs", "an empty chain", "five convolution plans, cold and warm", "the step in bfloat16",
            "PyTorch's compiler is started", "typed tests", "trainings against Host", "sanitizer memcheck",
            "PyTorch's compiler has ended", "the plans and their candidates", "training step against PyTorch",
            "kernels of a captured step", "memory", "ConcatMean against NcclAllReduce",
        ]  # fmt: skip
        self.assertEqual(sorted(order, key=names.index), order)

    def test_the_plans_of_the_typed_tests_leave_most_of_their_stage_s_time(self):
        limit = next(stage.limit for stage in stages_of("all") if stage.name == "typed tests")
        # A file with tests may take so long for its plans; the emulator counts them. Those of convolutions run beside the others.
        budget = float(re.search(r"planning_budget = ([\d.]+);", (HERE / "emulator/listener.hpp").read_text()).group(1))
        self.assertLessEqual(budget, limit / 2)

    def test_a_program_s_json_is_what_it_prints_last(self):
        for printed, expected in (('noise\n{}\n{"a": {"b": 1}}\n', {"a": {"b": 1}}), ('{\n "a": [\n  {"b": 2}]\n}', {"a": [{"b": 2}]})):
            self.assertEqual(stages.json_of(["printf", "%s", printed], 5, None), expected)
        for printed in ("", "noise", "{ noise", "{} noise"):
            with self.assertRaisesRegex(stages.Failed, "printf printed no JSON"):
                stages.json_of(["printf", "%s", printed], 5, None)
        with self.assertRaisesRegex(stages.Failed, "^false ended with status 1"):
            stages.json_of(["false"], 5, None)

    def test_assertions_that_failed_are_listed_once_with_their_values(self):
        output = (
            f"7: {run.ROOT}/tests/ops/a_test.cpp:12: ERROR: CHECK( error < 1e-5 ) is NOT correct!\n7:   values: CHECK( 0.1 < 1e-5 )\n"
            f"{run.ROOT}/tests/ops/a_test.cpp:12: ERROR: CHECK( error < 1e-5 ) is NOT correct!\n  values: CHECK( 0.1 < 1e-5 )\n\n"
            "b_test.cpp:3: FATAL ERROR: test case THREW exception: no GPU\n\n"
        )
        expected = "tests/ops/a_test.cpp:12: CHECK( error < 1e-5 ) is NOT correct!: CHECK( 0.1 < 1e-5 )"
        self.assertEqual(run.assertions_failed(output), [expected, "b_test.cpp:3: test case THREW exception: no GPU"])

    def test_a_stage_has_what_is_left_without_the_least_of_the_later_ones(self):
        report = stages.Report(self.folder, "check", "abc")
        report.left = lambda: 100
        given = []
        report.run([stages.Stage(name, limit, least, given.append) for name, limit, least in (("a", 300, 5), ("b", 20, 10), ("c", 90, 30))])
        self.assertEqual(given, [60, 20, 90])

    def test_a_stage_reports_how_it_ended_and_the_next_has_its_turn_unless_it_is_needed(self):
        def raises(error):
            def body(_):
                raise error

            return body

        report = stages.Report(self.folder, "bench", "abc")
        expected = {
            "passes": ("passed", lambda _: {"found": math.nan, "lines": ["a line"]}),
            "skips": ("skipped", raises(stages.Skipped("there is none"))),
            "breaks": ("failed", raises(KeyError("x"))),
            "takes long": ("failed", lambda _: stages.run(["sleep", "30"], 0.2)),
            "fails": ("failed", raises(stages.Failed("two are wrong", {"tests": [], "kept": 1}))),
            "never comes": ("skipped", lambda _: None),
        }
        report.run([stages.Stage(name, 10, 1, body, needed=name == "fails") for name, (_, body) in expected.items()])
        text = (self.folder / "report.json").read_text()
        said = json.loads(text, parse_constant=lambda name: self.fail(f"{name} is no JSON"))
        self.assertEqual(
            [(stage["name"], stage["status"]) for stage in said["stages"]], [(name, status) for name, (status, _) in expected.items()]
        )
        self.assertEqual((said["format"], said["ended"]), (stages.FORMAT, True))
        self.assertIsNone(said["stages"][0]["found"])
        self.assertEqual(said["stages"][4]["kept"], 1)
        text = (self.folder / "report.txt").read_text()
        for part in ("    a line", "skips  0.0 s: there is none", "KeyError: 'x'", "it was ended after 10 s", "fails  0.0 s: two are wrong"):
            self.assertIn(part, text)
        self.assertTrue(report.failed())


# Starts a process in a session of its own, one whose parent ends, and one that clears its environment too; each writes its number.
FAMILY = """
import os, subprocess, sys, time
def child(code, **more):
    subprocess.Popen([sys.executable, "-c", code, *sys.argv[1:]], start_new_session=True, **more)
note = "import os, sys, time; open(os.path.join(sys.argv[1], str(os.getpid())), 'w').close(); time.sleep(60)"
child(note)
orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {note!r}, *sys.argv[1:]], start_new_session=True"
child(orphan + ")")
child(orphan + ", env={})")
while len(os.listdir(sys.argv[1])) < 3:
    time.sleep(0.01)
print("all are there", flush=True)
if sys.argv[2] == "waits":
    time.sleep(60)
"""


class Descendants(InFolder):
    def setUp(self):
        self.assertTrue(descendants.adopt_orphans())
        super().setUp()

    def alive(self):
        found = []
        for number in (int(path.name) for path in self.folder.iterdir() if path.name.isdigit()):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    found.append(number)
        return found

    def command(self, how):
        notes = self.folder / how
        notes.mkdir()
        self.folder = notes
        return [sys.executable, "-c", FAMILY, notes, how]

    def test_nothing_survives_a_stage_whose_command_is_cut(self):
        report = stages.Report(self.folder / "out", "all", "abc")
        command = self.command("waits")
        begin = time.monotonic()
        with contextlib.redirect_stdout(io.StringIO()):
            report.stage("cut", 20, lambda _: stages.run(command, 3))
        self.assertLess(time.monotonic() - begin, 15)
        self.assertEqual(report.data["stages"][0]["reason"], "it was ended after 20 s: all are there")
        self.assertEqual(len(list(self.folder.iterdir())), 3)
        self.assertEqual(self.alive(), [])

    def test_nothing_survives_a_command_that_ends_before_its_children(self):
        report = stages.Report(self.folder / "out", "all", "abc")
        command = self.command("ends")
        found = {}
        with contextlib.redirect_stdout(io.StringIO()):
            report.stage("ends", 20, lambda _: found.update(status=stages.run(command, 15)))
        self.assertEqual(found["status"], (0, "all are there\n"))
        self.assertEqual(len(list(self.folder.iterdir())), 3)
        self.assertEqual(self.alive(), [])

    def test_a_program_that_works_beside_the_stages_lives_on_with_its_children(self):
        program = side_by_side.Program("beside", self.command("waits"), self.folder.parent / "log")
        while len(list(self.folder.iterdir())) < 3:
            time.sleep(0.01)
        report = stages.Report(self.folder.parent / "out", "all", "abc")
        with contextlib.redirect_stdout(io.StringIO()):
            report.stage("another", 20, lambda _: stages.run(["true"], 5))
        # Not the one that gave up its parent and its environment.
        self.assertEqual(len(self.alive()), 2)
        program.stop()
        self.assertEqual(self.alive(), [])

    def test_a_run_whose_time_is_over_ends_with_all_of_it(self):
        code = f"""
import sys; sys.path.insert(0, {str(HERE / 'card')!r})
import pathlib, subprocess, descendants, stages
descendants.adopt_orphans()
report = stages.Report(pathlib.Path(sys.argv[1]), "all", "abc")
report.watch(3)
report.stage("hangs", 60, lambda _: subprocess.run([sys.executable, "-c", {FAMILY!r}, sys.argv[2], "waits"]))
"""
        out, notes = self.folder / "out", self.folder / "notes"
        notes.mkdir()
        run = ended(sys.executable, "-c", code, out, notes)
        self.assertEqual((run.returncode, run.stderr), (1, ""))
        said = json.loads((out / "report.json").read_text())
        self.assertEqual((said["ended"], said["stages"][0]["status"]), (True, "failed"))
        self.assertEqual(said["stages"][0]["reason"], "the time of the whole run was over")
        self.folder = notes
        self.assertEqual(len(list(notes.iterdir())), 3)
        self.assertEqual(self.alive(), [])

    def test_a_log_keeps_its_end_within_its_limit(self):
        log = self.folder / "log"
        with unittest.mock.patch.object(stages, "LOG_BYTES", 1000):
            for i in range(50):
                stages.append(log, f"line {i}\n" * 20)
        self.assertLessEqual(log.stat().st_size, 1000)
        self.assertTrue(log.read_text().startswith("line 0\n"))


# Stands in for the program: it records its arguments and environment, and ends as it would with NCCL.
TWO_PROCESSES = """
import json, os, pathlib, signal, sys
result, process, processes = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
noted = {name: os.environ.get(name) for name in ("NCCL_HOSTID", "NCCL_NET", "CUDA_VISIBLE_DEVICES", "CUPOLA_NCCL_ID")}
with open(os.environ["NOTES"], "a") as notes:
    print(json.dumps({"name": result.stem, **noted}), file=notes)
how = os.environ.get("ONE_HOST_BY", "SHM") if noted["NCCL_HOSTID"] is None else "NET"
pathlib.Path(os.environ["NCCL_DEBUG_FILE"]).write_text(f"host:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[0] via {how}/x")
if "on-one-gpu" in result.stem:
    print("error: replica 0 (rank 0 of 2) in the start of the communicator: NCCL's last call failed with invalid usage")
    sys.exit(int(os.environ.get("REFUSED_WITH", 3)))
if "--die-at" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
if "survivor" in result.stem:
    print("error: replica 0 (rank 0 of 2) in the sum of the gradients of step 5: it is late; the heartbeat of rank 1 has stopped")
    sys.exit(3)
result.write_text(json.dumps({"losses": [2.0, 1.0], "parameters": [0.5, 0.25]}))
"""


class TwoProcesses(unittest.TestCase):
    def checked(self, **variables):
        """What was found, or the error, and how each process was started."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            program = folder / "program"
            program.write_text(f"#!{sys.executable}\n{TWO_PROCESSES}")
            program.chmod(0o755)
            notes = folder / "notes"
            environment = {"NOTES": str(notes), "NCCL_HOSTID": "a-host", "CUPOLA_NCCL_ID": "00", **variables}
            with unittest.mock.patch.dict(os.environ, environment):
                try:
                    found = two_processes.run_two_processes(program, folder, folder / "log", 60)
                except stages.Failed as reason:
                    found = str(reason)
            starts = [json.loads(line) for line in notes.read_text().splitlines()]
            return found, {start.pop("name"): start for start in starts}

    def test_processes_pass_for_two_hosts_and_are_of_one_on_a_gpu_each(self):
        found, starts = self.checked(CUDA_VISIBLE_DEVICES="4,6")
        self.assertEqual(found["transports"], ["NET"])
        self.assertEqual((found["one_host"]["gpus"], found["one_host"]["transports"]), (2, ["SHM"]))
        self.assertIn("rank 1 has stopped", found["one_host"]["error"])
        for name in ("two-ranks", "survivor", "killed"):
            for process, gpu in ((0, "4"), (1, "6")):
                if (name, process) in (("survivor", 1), ("killed", 0)):
                    continue
                hosts, host = starts[f"{name}-{process}"], starts[f"{name}-of-one-host-{process}"]
                self.assertEqual((hosts["NCCL_HOSTID"], hosts["NCCL_NET"]), (f"cupola-{process}", "Socket"))
                self.assertEqual((host["NCCL_HOSTID"], host["NCCL_NET"], host["CUDA_VISIBLE_DEVICES"]), (None, None, gpu))
                self.assertIsNone(host["CUPOLA_NCCL_ID"])

    def test_ranks_of_one_host_that_talk_by_sockets_are_a_failure(self):
        found, _ = self.checked(CUDA_VISIBLE_DEVICES="0,1", ONE_HOST_BY="NET")
        self.assertEqual(found, "processes of one host: the ranks of one host are connected by NET")

    def test_on_one_gpu_nccl_s_refusal_ends_both(self):
        found, starts = self.checked(CUDA_VISIBLE_DEVICES="3")
        self.assertEqual(len(found["one_host"]["refused"]), 2)
        for process in (0, 1):
            start = starts[f"two-ranks-on-one-gpu-{process}"]
            self.assertEqual((start["NCCL_HOSTID"], start["CUDA_VISIBLE_DEVICES"]), (None, "3"))
        found, _ = self.checked(CUDA_VISIBLE_DEVICES="3", REFUSED_WITH="0")
        self.assertIn("two-ranks-on-one-gpu-0, which NCCL rejects, ended with status 0", found)


class Roofline(unittest.TestCase):
    rates = {"operations": 100e12, "bytes": 4e12}
    parts = [
        {"name": "conv1", "what": "Conv2d", "pass": "forward", "seconds": 20e-6, "operations": 1e9, "bytes": 8e6},  # 10 and 2 us
        {"name": "", "what": "loss", "pass": "", "seconds": 5e-6, "operations": 0, "bytes": 0},
        {"name": "", "what": "optimiser", "pass": "", "seconds": 6e-6, "operations": 0, "bytes": 12e6},
    ]  # 3 us

    def test_a_part_is_bound_by_the_longer_of_its_times(self):
        self.assertAlmostEqual(roofline.of_part(self.parts[0], self.rates), 10e-6)
        self.assertAlmostEqual(roofline.of_part(self.parts[2], self.rates), 3e-6)
        self.assertEqual(roofline.of_part(self.parts[1], self.rates), 0)

    def test_a_step_has_the_sum_of_its_parts_and_never_less_than_all_together(self):
        found = roofline.of_step(self.parts, self.rates)
        self.assertEqual((found["operations"], found["bytes"]), (1e9, 20e6))
        self.assertAlmostEqual(found["seconds"], 13e-6)
        self.assertAlmostEqual(found["whole"], 10e-6)  # 10 us of operations, 5 us of bytes

    def test_the_tutorial_network_has_the_operations_that_the_cpu_benchmark_counts(self):
        # Multiply-adds of a sample, taps inside the image: forward, and backward twice but for the first layer's input.
        def conv(size, channels_in, channels_out):
            taps = sum(min(size, i + 3) - max(0, i - 2) for i in range(size))
            return taps * taps * channels_in * channels_out

        forward = [conv(24, 3, 64), conv(12, 64, 64), 2304 * 384, 384 * 192, 192 * 10]
        parts = [{"operations": 2 * count * factor, "bytes": 0} for i, count in enumerate(forward) for factor in (1, 2 if i else 1)]
        found = roofline.of_step(parts, {"operations": 1e9, "bytes": 1})
        sys.path.append(str(HERE.parent / "benchmarks"))
        import steps

        self.assertAlmostEqual(found["seconds"], steps.GFLOP_PER_SAMPLE["lrn"], places=9)

    def test_a_kernel_has_its_name_without_arguments(self):
        self.assertEqual(roofline.short_name("void cupola::v0_1_avx2::impl::f<int (*)(long)>(int, void (*)(long))"), "f<int (*)(long)>")
        self.assertEqual(roofline.short_name("sm90_xmma_fprop"), "sm90_xmma_fprop")
        self.assertEqual(len(roofline.short_name("x" * 500)), 110)

    def test_a_launch_is_bound_by_its_bytes_or_by_its_operations(self):
        launch = {"name": "f", "library": True, "read": 3e6, "written": 1.3e6, "operations": 0}
        self.assertAlmostEqual(roofline.bound_of_launch(launch, "float", "H200"), 1e-6)
        self.assertAlmostEqual(roofline.bound_of_launch(launch, "float", "H100"), 4.3 / 3 * 1e-6)
        launch["operations"] = 1.2e9
        self.assertAlmostEqual(roofline.bound_of_launch(launch, "float", "H200"), 20e-6)
        self.assertAlmostEqual(roofline.bound_of_launch(launch, "tf32", "H200"), 3e-6)
        floors = roofline.Floors(1e-6, 0.5e-6, "of a test")
        self.assertAlmostEqual(roofline.predicted_of_launch(launch, "float", "H200", floors), 20.5e-6)
        launch.update(read=0, written=0, operations=0)
        self.assertAlmostEqual(roofline.predicted_of_launch(launch, "float", "H200", floors), 1.5e-6)
        self.assertAlmostEqual(roofline.predicted_of_launch(launch, "float", "H200"), 3.3e-6)
        self.assertEqual([roofline.card_of(gpu) for gpu in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "L4")], ["H200", "H100", None])

    def test_the_floors_of_a_card_are_those_of_its_chain_of_empty_kernels(self):
        def floors(**chain):
            found = roofline.floors_of(chain)
            return round(1e6 * found.kernel, 6), round(1e6 * found.gap, 6), "measured on this card" in found.source

        self.assertEqual(floors(seconds=3.5e-6, kernel=2.25e-6), (2.25, 1.25, True))
        self.assertEqual(floors(seconds=2e-6, kernel=2.5e-6), (2.5, 0.0, True))
        # Where no kernel could be recorded, only their sum was measured.
        self.assertEqual(floors(seconds=6.6e-6), (4.0, 2.6, True))
        self.assertEqual(floors(seconds=6.6e-6, kernel=0.0), (4.0, 2.6, True))
        self.assertIn("whose sum was measured", roofline.floors_of({"seconds": 6.6e-6, "kernel": None}).source)
        for seconds in (0, -1e-6, math.nan):
            with self.assertRaises(ValueError):
                roofline.floors_of({"seconds": seconds, "kernel": 1e-6})

    def test_the_page_says_which_time_is_predicted(self):
        from bench import predicted

        page = json.loads((HERE.parents[1] / "docs/measurements/gpu-predicted.json").read_text())
        self.assertEqual({key: page[key] for key in ("rates", "floors")}, predicted.assumed())
        of = predicted.BY_PARTS
        launches = next(step for step in page["steps"] if (step["precision"], step["batch"]) == (of["precision"], of["batch"]))["launches"]
        took = roofline.predicted_of_step(launches, of["precision"], of["card"])
        text = "\n".join(predicted.by_parts_lines(page["steps"]))
        self.assertIn(f"**Predicted is {1e3 * took:.3f} ms**", text)
        self.assertIn("not the 0.134 ms of an estimate by parts", text)
        # Another step than the estimate's is not compared with it.
        self.assertNotIn(" of their bounds", "\n".join(predicted.by_parts_lines([{**of, "launches": launches[1:]}])))
        share = roofline.share_of_bounds(launches, of["precision"], of["card"], 1.5 * took)
        slower = [{**launch, **{key: launch[key] / share for key in ("read", "written", "operations")}} for launch in launches]
        self.assertAlmostEqual(roofline.predicted_of_step(slower, of["precision"], of["card"]), 1.5 * took)
        self.assertIsNone(roofline.share_of_bounds(launches, of["precision"], of["card"], 0.9 * took))

    def test_measured_kernels_stand_beside_their_prediction(self):
        def launch(name, library, moved):
            return {"name": name, "library": library, "read": moved, "written": 0, "operations": 0}

        predicted = [launch("f<int>", False, 4.3e6), launch("f<int>", False, 8.6e6), launch("cublasLtMatmul, 1", True, 43e6)]
        predicted.append(launch("gone", False, 0))
        measured = [
            {"name": "void cupola::v0_1::impl::f<int>(long)", "count": 2, "seconds": 4e-6},
            {"name": "void cutlass::gemm<float>(int)", "count": 1, "seconds": 12e-6},
            {"name": "splitKreduce", "count": 1, "seconds": 2e-6},
            {"name": "void cupola::v0_1::impl::new_kernel(int)", "count": 1, "seconds": 1e-6},
        ]
        rows = roofline.beside_prediction(predicted, "float", "H200", measured, roofline.Floors(1e-6, 0.5e-6, "of a test"))
        self.assertEqual([row["name"] for row in rows], ["cuDNN and cuBLASLt", "f<int>", "new_kernel", "gone", "all"])
        self.assertEqual([row["count"] for row in rows], [1, 2, 0, 1, 4])
        self.assertEqual([row["measured_count"] for row in rows], [2, 2, 1, 0, 5])
        self.assertIsNone(rows[3]["measured"])
        for row, expected in zip(rows, (14e-6, 4e-6, 1e-6, 0, 19e-6)):
            self.assertAlmostEqual(row["measured"] or 0, expected)
        for row, expected in zip(rows, (10e-6, 3e-6, 0, 0, 13e-6)):
            self.assertAlmostEqual(row["bound"], expected)
        self.assertAlmostEqual(rows[-1]["predicted"], 10.5e-6 + 1.5e-6 + 2.5e-6 + 1.5e-6)

    def test_the_predicted_launches_of_the_page_can_be_read(self):
        # Forward and the two gradients, of conv1 only that of the weights; with the zeros around an image. Linear layers are a library's
        # where the batch is too large for a kernel of them all, and the gradients of the last layer are none.
        convolutions, linear = 2 * 24**2 * 64 * 75 + 3 * 12**2 * 64 * 1600, 3 * (2304 * 384 + 384 * 192) + 192 * 10
        page = json.loads((HERE.parents[1] / "docs/measurements/gpu-predicted.json").read_text())
        for step in page["steps"]:
            found = roofline.beside_prediction(step["launches"], step["precision"], "H200", [])
            self.assertEqual(found[-1]["count"], len(step["launches"]))
            self.assertGreater(found[-1]["predicted"], found[-1]["bound"])
            operations = sum(launch["operations"] for launch in step["launches"])
            more = 2 * 24**2 * 64 * 25 * (8 - 3) if step["precision"].endswith(roofline.PADDED) else 0  # of zeros
            products = convolutions + (linear if step["batch"] > 1024 else 0)
            self.assertEqual(operations, (2 * products + more) * step["batch"])

    def test_the_step_that_pads_is_found_by_its_kernel(self):
        steps = [{"precision": precision, "batch": 128} for precision in ("bfloat16", "bfloat16-padded", "float")]
        for kernels, expected in (([], steps[0]), ([{"name": "f<int>"}], steps[0]), ([{"name": "strided_kernel<PadChannels<BFloat16>>"}], steps[1])):
            self.assertIs(roofline.predicted_step(steps, "bfloat16", 128, kernels), expected)
        self.assertIsNone(roofline.predicted_step(steps, "half", 128, []))

    def test_a_change_of_launches_is_named(self):
        from bench import predicted

        launch = {"name": "f", "library": False, "read": 1, "written": 2, "operations": 0}
        self.assertEqual(predicted.difference([launch], [launch]), [])
        self.assertEqual(predicted.difference([launch, launch], [launch]), ["- ('f', False, 1, 2, 0)"])
        self.assertEqual(len(predicted.difference([launch], [{**launch, "read": 5}])), 2)
        self.assertEqual(predicted.without_bytes([launch])[0]["read"], 0)

    def test_the_table_names_what_bounds_each_part(self):
        lines = roofline.lines_of({"parts": self.parts, "seconds": 40e-6, "rest": 9e-6}, self.rates)
        self.assertEqual([line.split()[-1] for line in lines[1:4]], ["operations", "12.5%", "bytes"])
        self.assertIn("conv1 forward", lines[1])
        self.assertEqual(lines[1].split()[2:6], ["20.0", "50.0%", "10.0", "0.50"])
        self.assertIn("13.0", lines[-1])


class Bars(unittest.TestCase):
    profile = {"parts": Roofline.parts}

    def row(self, own, precision="bfloat16", batch=128, **modes):
        others = {mode: [10 * max(own)] * len(own) for mode in measure.PEERS}
        return measure.row_of(precision, batch, {"cupola": own, **others, **modes}, {}, self.profile, {precision: Roofline.rates})

    def test_a_ratio_is_taken_within_each_round_and_the_median_counts(self):
        row = self.row([1e-4, 2e-4, 1e-4], compiled=[3e-4, 5e-4, 2.1e-4], captured=[1.1e-4, 2.4e-4, 1.3e-4])
        self.assertAlmostEqual(row["ratios"]["compiled"]["median"], 2.5)
        self.assertAlmostEqual(row["ratios"]["captured"]["least"], 1.1)
        self.assertAlmostEqual(row["images_per_second"]["median"], 128 / 1e-4)
        self.assertAlmostEqual(row["roofline"]["reached"], 0.13)
        self.assertIn("2.50 (2.10 to 3.00)", measure.line_of(row))

    def test_the_goal_is_over_the_fastest_mode(self):
        for precision, batch, ratio, met in (
            ("bfloat16", 128, 1.99, False), ("bfloat16", 128, 2.01, True), ("bfloat16", 2048, 1.29, False),
            ("bfloat16", 2048, 1.31, True), ("bfloat16", 512, 1.01, True), ("float", 128, 1.19, False), ("float", 512, 1.21, True),
            ("tf32", 2048, 1.19, False), ("half", 128, 1.01, True), ("half", 128, 0.99, False), ("half", 128, 1.0, False),
        ):  # fmt: skip
            with self.subTest(precision=precision, batch=batch, ratio=ratio):
                bar = self.row([1e-4], precision, batch, autotuned=[ratio * 1e-4])["bars"][0]
                self.assertEqual((bar["met"], "(autotuned)" in bar["what"]), (met, True))

    def test_a_step_in_bfloat16_has_a_limit_of_its_own_which_its_floors_may_raise(self):
        self.assertEqual([measure.step_bar(took, least)["met"] for took, least in ((0.12, None), (0.14, None), (0.13, 0.1))], [True, False, True])
        self.assertIsNone(measure.step_bar(None, 0.1)["met"])
        raised = measure.step_bar(0.14, 0.15)
        self.assertEqual((raised["met"], raised["asked"]), (True, 0.15))
        self.assertIn("the goal is 0.13; the floors of this card allow no less", raised["what"])

    def test_every_bar_of_a_card_is_reachable_at_its_own_floors(self):
        """Each kernel and each step of the prediction takes what it takes at least, by the floors: no bar may ask for more."""
        steps = json.loads(measure.PREDICTED.read_text())["steps"]
        cards = [(card, roofline.PUBLISHED) for card in roofline.CARDS] + [("H200", roofline.floors_of({"seconds": 9e-6, "kernel": 6e-6}))]
        for card, floors in cards:
            for step in steps:
                with self.subTest(card=card, floors=floors, precision=step["precision"], batch=step["batch"]):
                    kernels = [
                        {"name": f"void cupola::v0_1::{launch['name']}(int)", "count": 1,
                         "seconds": max(roofline.bound_of_launch(launch, step["precision"], card), floors.kernel)}
                        for launch in step["launches"] if not launch["library"]
                    ]  # fmt: skip
                    rows = roofline.beside_prediction(step["launches"], step["precision"], card, kernels, floors)
                    bars = measure.kernel_bars(step["precision"], step["batch"], rows, floors)
                    self.assertGreater(len(bars), 7)
                    self.assertEqual([bar for bar in bars if not bar["met"]], [])
                    # They follow from this card's floors, and not from those of another.
                    if step["batch"] == 2048:
                        shorter = dataclasses.replace(floors, kernel=floors.kernel / 2)
                        self.assertTrue(measure.bars_missed(measure.kernel_bars(step["precision"], 2048, rows, shorter)))
            least = 1e3 * roofline.predicted_of_step(steps[0]["launches"], *measure.STEP[:1], card, floors)
            self.assertTrue(measure.step_bar(least, least)["met"])
            # Batches, made by one or two kernels, at five times the rate of the fastest step.
            self.assertLessEqual(5 * 2 * (floors.kernel + floors.gap), 1e-3 * max(least, measure.MILLISECONDS))

    def test_choices_of_plans_are_compared_cold_and_warm(self):
        def time_of(*choices, **more):
            candidates = [{"name": "engine 1", "seconds": 1e-5}, {"name": "engine 2 3=4, tensor cores", "seconds": 1.04e-5},
                          {"name": "engine 5", "seconds": 2e-5}, {"name": "engine 2 3=4, tensor cores, padded", "seconds": 9.9e-6}]  # fmt: skip
            plans = [
                {"key": f"cuDNN 9, a GPU, forward of a convolution in half: 1 -> {i}, window 5 x 5{more.get('of', '')}", "choice": choice, "seconds": 1e-5,
                 "candidates": candidates} for i, choice in enumerate(choices)
            ]  # fmt: skip
            return {"seconds": 1.0, "plans": [*plans, {"key": "cuBLASLt, a GPU, a product", "choice": "", "seconds": 0, "candidates": []}]}

        warm = time_of(*["engine 1"] * 5)
        # The same, one that is 4 % slower, and one that takes twice the time.
        good = measure.convolutions_found([time_of("engine 1", "engine 2 3=4", *["engine 1"] * 3), warm], "")
        self.assertEqual((good["bars"][0]["measured"], good["bars"][0]["met"]), (5, True))
        self.assertIn("forward -> 1: cold engine 2 3=4, 0.0100 ms; warm engine 1, 0.0100 ms; the cold choice 0.0104 ms", good["lines"])
        for times, text in (
            ([time_of("engine 5", *["engine 1"] * 4), warm], "is 4, asked 5"),
            ([time_of("engine 7", *["engine 1"] * 4), warm], "is 4, asked 5"),
            ([warm], "plans of 5 convolutions were made 1 times"),
            ([time_of(*["engine 1"] * 4)] * 2, "plans of 4 convolutions were made 2 times, and 5 are expected"),
            ([], "plans of 0 convolutions"),
        ):
            with self.assertRaisesRegex(stages.Failed, text):
                measure.convolutions_found(times, "")
        with self.assertRaisesRegex(stages.Failed, "^it was ended after 3 s$"):
            measure.convolutions_found([warm], "it was ended after 3 s")

    def test_what_was_not_measured_is_not_met(self):
        row = measure.row_of("float", 512, {"cupola": [1e-4], "eager": [9e-4]}, {"compiled": "it was not made"}, None, None)
        self.assertEqual([bar["met"] for bar in row["bars"]], [None])
        self.assertEqual(
            measure.bars_missed(row["bars"]),
            "1 of 1 bars are not met: float 512 over PyTorch's fastest mode (eager), of the modes but compiled, captured, autotuned "
            "is 9, asked 1.2",
        )
        nothing = measure.row_of("bfloat16", 128, {}, {}, None, None)
        self.assertIn("not measured", measure.line_of(nothing))
        self.assertEqual([bar["met"] for bar in nothing["bars"]], [None])

    def test_our_kernels_are_asked_for_a_fraction_of_their_bound(self):
        def row(name, count, bound, measured):
            return {"name": name, "count": count, "bound": bound, "predicted": bound, "measured_count": count, "measured": measured}

        rows = [row("fast", 1, 7e-6, 10e-6), row("slow", 1, 6.9e-6, 10e-6), row("small", 2, 1e-9, 5e-6), row("did not run", 1, 1e-6, None),
                row("not predicted", 0, 0.0, 1e-6), row(roofline.LIBRARIES, 5, 1e-6, 1e-3), row("all", 9, 1e-5, 1e-3)]  # fmt: skip
        bars = measure.kernel_bars("float", 2048, rows)
        self.assertEqual([bar["what"].split(" in ")[0] for bar in bars], ["fast", "slow", "small", "did not run"])
        self.assertEqual([bar["met"] for bar in bars], [True, False, True, None])
        self.assertAlmostEqual(bars[2]["measured"], 0.8)

    def test_batches_have_to_be_five_times_as_many_as_a_step_takes(self):
        said = "\n".join(json.dumps({"batch": batch, "images_per_second": 6e6}) for batch in measure.BATCHES)
        own = {batch: 1e6 for batch in measure.BATCHES}
        self.assertEqual([bar["met"] for bar in measure.batches_found(0, said, own)["bars"]], [True] * 3)
        with self.assertRaises(stages.Failed) as failed:
            measure.batches_found(0, said, {**own, 512: 2e6})
        self.assertEqual(str(failed.exception), "1 of 3 bars are not met: batches of 512 over the step's own rate is 3, asked 5")
        with self.assertRaises(stages.Failed):
            measure.batches_found(1, "bench_batches: no GPU", own)


PEER = """
import json, sys, time
print("noise"); print(json.dumps({"name": "a peer"}), flush=True)
for line in sys.stdin:
    *what, count = line.split()
    if what == ["breaks"]: sys.exit("it broke")
    if what == ["hangs"]: time.sleep(3)
    print(json.dumps({"seconds": [float(what[0]) if what else 0.001], "loss": 1}), flush=True)
"""


class SideBySide(InFolder):
    def program(self, code=PEER):
        program = side_by_side.Program("the peer", [sys.executable, "-c", code], self.folder / "peers.log")
        self.addCleanup(program.stop)
        return program

    def test_programs_take_turns_and_one_that_breaks_costs_only_itself(self):
        first, second, third = self.program(), self.program(), self.program()
        self.assertEqual([program.ready(20)["name"] for program in (first, second, third)], ["a peer"] * 3)
        found, missing = side_by_side.take_turns(
            {"a": (first, ""), "b": (second, "0.5"), "c": (third, "breaks")}, 3, 0.05, time.monotonic() + 60
        )
        self.assertEqual(found, {"a": [0.001] * 3, "b": [0.5] * 3})
        self.assertEqual(missing, {"c": "the peer ended with status 1: it broke"})

    def test_a_program_that_says_nothing_is_given_up(self):
        program = self.program()
        program.ready(20)
        with self.assertRaisesRegex(side_by_side.Stopped, "printed nothing for 0 s"):
            program.work(3, 0.2, "hangs")
        begin = time.monotonic()
        with self.assertRaisesRegex(side_by_side.Stopped, "ended with status 3: no such thing"):
            self.program("import sys; print('no such thing', file=sys.stderr); sys.exit(3)").ready(20)
        self.assertLess(time.monotonic() - begin, 15)

    def test_no_round_begins_that_would_end_too_late(self):
        program = self.program()
        program.ready(20)
        found, _ = side_by_side.take_turns({"a": (program, "0.001")}, 50, 1.0, time.monotonic() + 0.5)
        self.assertEqual(found, {"a": [0.001]})

    def test_a_queued_peer_answers_with_the_mean_of_its_steps(self):
        code = f"""
import sys; sys.path.insert(0, {str(HERE.parent / 'benchmarks/peers')!r})
import protocol
done = []
protocol.serve_queued({{"name": "queued"}}, {{"8 fast": (done.append, lambda: float(len(done)))}})
"""
        program = self.program(code)
        self.assertEqual(program.ready(20), {"name": "queued"})
        self.assertLess(program.work(1000, 20, "8 fast"), 0.01)
        program.process.stdin.write(b"8 fast 5\n")
        self.assertEqual(program.answer(20)["loss"], 1005.0)


OWN_STEP = """
import json, sys
if "plans" in sys.argv:
    for batch in sys.argv[1].split(","):
        print(json.dumps({"batch": int(batch), "bytes": 1e6 * int(batch), "launches": "30 launches",
                          "plans": [{"plan": "plan of a", "candidates": [{"name": "engine 4", "seconds": 1e-5}]}]}))
    open(next(word for word in sys.argv if word.startswith("plans=")).partition("=")[2], "w").write("plans")
    import os
    open(os.path.join(os.path.dirname(sys.argv[0]), "plans were made"), "w").close()
    sys.exit()
batch, words = int(sys.argv[1]), sys.argv[2:]
if "empty" in words:
    print(json.dumps({"kernels": 2000, "seconds": 2.5e-6, "kernel": 1.5e-6})); sys.exit()
if "again" in words:
    outputs = ["forward, bias, ReLU of a convolution in bfloat16: 1 x 24 x 24 x 3 -> 24 x 24 x 64", "weight gradient of a convolution in bfloat16: 1 -> 12",
               "forward of a convolution in bfloat16: 1 -> 12", "weight gradient of a convolution in bfloat16: 1 -> 24", "input gradient of a convolution in bfloat16: 1 -> 12"]
    for time, choice in enumerate(["engine 4 2=8", "engine 1", "engine 1"]):
        candidates = [{"name": "engine 4 2=8, tensor cores", "seconds": 1.01e-5 if time else 9e-5}, {"name": "engine 1", "seconds": 1e-5 if time else 9.5e-5}]
        print(json.dumps({"batch": batch, "time": time, "seconds": 2.0 - time / 2, "plans": [
            {"key": f"cuDNN 91900, a GPU, {output}, window 5 x 5", "plan": "", "choice": choice, "seconds": 1e-5, "candidates": candidates} for output in outputs] + [
            {"key": "cuBLASLt 130100, a GPU, a product", "plan": "", "choice": "algorithm 1", "seconds": 1e-6, "candidates": []}]}))
    sys.exit()
if "nodes" in words:
    print("noise"); print(json.dumps({"seconds": 3e-4, "rest": 1e-4, "steps": 30, "parts": [
        {"name": "conv1", "what": "Conv2d", "pass": "forward", "seconds": 2e-4, "operations": 1e6 * batch, "bytes": 1e3},
        {"name": "pool1", "what": "MaxPool2d", "pass": "forward", "seconds": 1e-5, "operations": 0, "bytes": 8e6}]}))
    sys.exit()
if "kernels" in words:
    print(json.dumps({"steps": 20, "seconds": 3e-4, "busy": 2e-4, "kernels": [
        {"name": "void cupola::v0_1::impl::strided_kernel<cupola::v0_1::impl::Relu<4> >(long, cupola::v0_1::impl::Relu<4>)",
          "count": 2, "seconds": 1e-4}]}))
    sys.exit()
import os
made = os.path.exists(os.path.join(os.path.dirname(sys.argv[0]), "plans were made"))
assert made == any(word.startswith("plans=") for word in words), "it takes the plans that were made, and none of another run"
print(json.dumps({"name": "Cupola", "how": "captured"}), flush=True)
for line in sys.stdin:
    print(json.dumps({"seconds": [batch * (2e-6 if "chain" in words else 1e-6)], "loss": 1}), flush=True)
"""
OTHERS = {
    "bench_machine": """
import json, sys
rates = {name: {"operations": 1e13, "bytes": 1e12} for name in ("float", "tf32", "bfloat16", "half")}
print(json.dumps({"deviceName": "a GPU"} if "describe" in sys.argv else {"device": "a GPU", **rates}))""",
    "bench_batches": 'for batch in (128, 512, 2048): print(f\'{{"batch": {batch}, "images_per_second": 6000000}}\')',
    "bench_averaging": """
import json, sys
print(json.dumps({"devices": 1}), flush=True)
for line in sys.stdin: print(json.dumps({"seconds": [1e-4 if sys.argv[1] == "nccl" else 2e-4], "loss": 1}), flush=True)""",
    "test_gpu_ops": 'print("[doctest] test cases:  3 |  3 passed")',
    "test_gpu_training": 'print("[doctest] test cases:  2 |  2 passed")',
    "test_step_calls": 'print("calls: 1")',
}
FULL_PEER = """
import json, sys
factor = {"eager": 9, "compiled": 3, "captured": 2.5, "autotuned": 2.2, "augmented": 3}
programs = {f"{batch} {mode} {lrn}": {"bytes": 3 << 20}
            for batch in (128, 512, 2048) for mode in factor for lrn in (("slices", "convolution") if mode == "captured" else ("slices",))}
print(json.dumps({"name": "PyTorch", "version": "2", "how": "as it is", "programs": programs, "left_out": {}}), flush=True)
for line in sys.stdin:
    batch, mode, lrn, count = line.split()
    print(json.dumps({"seconds": [int(batch) * 1e-6 * factor[mode] * (1.1 if lrn == "slices" else 1)], "loss": 1}), flush=True)
"""


def write_programs(folder):
    for name in ("bench_step_float", "bench_step_bfloat16", "bench_step_half"):
        script(folder / name, OWN_STEP)
    for name, code in OTHERS.items():
        script(folder / name, code)


class WholeBench(InFolder):
    """All stages of bench after the build, with stand-ins for the programs."""

    def setUp(self):
        super().setUp()
        write_programs(self.folder)
        for name, value in (("TURN_SECONDS", 0.005), ("ROUNDS", 3)):
            changed = unittest.mock.patch.object(measure, name, value)
            changed.start()
            self.addCleanup(changed.stop)

    def run_with(self, **peers):
        (self.folder / "cache").mkdir()
        for precision in measure.PRECISIONS:
            (self.folder / f"cache/plans-{precision}.txt").write_text("of another run")
        measured = measure.Measured(Folder(self.folder), self.folder / "cache", self.folder)
        with measured, contextlib.redirect_stdout(io.StringIO()):
            log = self.folder / "peers.log"
            measured.peers = {name: side_by_side.Program(name, [sys.executable, "-c", code], log) for name, code in peers.items()}
            measured.start_peers = measured.await_peers
            report = stages.Report(self.folder / "out", "bench", "abc")
            made = run.stages_of("bench", report, self.folder, settings_for(self.folder), Folder(self.folder), measured)
            first = [stage.name for stage in made].index("an empty chain")
            report.run([stage for stage in made[first:] if not stage.name.startswith("PyTorch's compiler")])
        return {stage["name"]: stage for stage in report.data["stages"]}, (self.folder / "out/report.txt").read_text()

    def test_all_stages_pass_where_all_bars_are_met(self):
        predicted = json.loads(measure.PREDICTED.read_text())
        for step in predicted["steps"]:  # what the stand-in runs
            step["launches"] = [
                {"name": "strided_kernel<Relu<4> >", "library": False, "read": 9e7, "written": 0, "operations": 0},
                {"name": "a convolution", "library": True, "read": 1, "written": 1, "operations": 1},
            ]
        (self.folder / "predicted.json").write_text(json.dumps(predicted))
        with unittest.mock.patch.multiple(measure, PREDICTED=self.folder / "predicted.json", MILLISECONDS=0.2):
            found, text = self.run_with(**dict.fromkeys(measure.PRECISIONS, FULL_PEER))
        self.assertEqual({name: stage["status"] for name, stage in found.items()}, dict.fromkeys(found, "passed"), text)
        rows = found["training step against PyTorch"]["rows"]
        self.assertEqual(len(rows), 15)
        self.assertEqual(rows[0]["rounds"], {"cupola": 3, "eager": 3, "compiled": 3, "captured": 3, "autotuned": 3})
        # Of two implementations the faster one takes its turns.
        self.assertEqual(rows[0]["lrn"]["captured"], "convolution")
        self.assertAlmostEqual(rows[0]["ratios"]["captured"]["median"], 2.5)
        self.assertAlmostEqual(rows[0]["bars"][0]["measured"], 2.42)
        self.assertAlmostEqual(rows[0]["roofline"]["reached"], (1e6 * 128 / 1e13 + 8e-6) / 128e-6)
        self.assertEqual((rows[-1]["augmented"], rows[-1]["batch"], rows[-1]["bars"][0]["met"]), (True, 2048, True))
        self.assertAlmostEqual(found["batches made on the device"]["bars"][0]["measured"], 6)
        self.assertEqual(len(found["where the time of a step goes"]["nodes"]), 12)
        self.assertEqual(found["memory"]["bytes"]["half 512"], {"cupola": 512e6, **dict.fromkeys((*measure.PEERS, "augmented"), 3 << 20)})
        averaging = found["ConcatMean against NcclAllReduce"]["rows"]
        self.assertEqual([row["replicas"] for row in averaging], [1, 2, 4])
        self.assertAlmostEqual(averaging[2]["milliseconds"]["nccl"]["median"], 0.1)
        ways = found["ways to queue a step"]["rows"]
        self.assertEqual([row["batch"] for row in ways], [128, 2048])
        self.assertEqual(list(ways[0]["milliseconds"]), ["one chain", "branches", "one chain, launched early", "branches, launched early"])
        self.assertAlmostEqual(ways[0]["over_chain"]["branches"]["median"], 0.5)
        self.assertIn("bfloat16 128, branches: 0.1280 (0.1280 to 0.1280) ms, 0.500 (0.500 to 0.500) of one chain", text)
        self.assertIn("    half 2048: 30 launches\n        plan of a\n            0.0100 ms  engine 4\n", text)
        beside = found["kernels of a captured step"]["beside"]
        self.assertEqual(sorted(beside), ["bfloat16 128", "bfloat16 2048", "float 128", "float 2048", "half 128", "tf32 128", "tf32 2048"])
        self.assertIn("beside the prediction:", text)
        self.assertIn("conv1 forward", text)
        self.assertIn("300.0 us/step, in 100.0 us of it nothing runs", text)
        self.assertIn("    100.0 us  33.3%     2 x  strided_kernel<Relu<4> >\n", text)

    def test_a_program_that_is_not_there_costs_its_rows_and_no_more(self):
        (self.folder / "bench_step_bfloat16").unlink()
        found, text = self.run_with(**dict.fromkeys(measure.PRECISIONS, FULL_PEER))
        self.assertEqual(found["where the time of a step goes"]["status"], "failed")
        steps = found["training step against PyTorch"]
        self.assertIn("6 of 15 bars are not met: bfloat16 128 over PyTorch's fastest mode", steps["reason"])
        self.assertIn("bench_step_bfloat16 is not there", text)
        self.assertEqual([len(row["milliseconds"]) for row in steps["rows"]], [5, 5, 4, 5] * 3 + [1] * 3)

    def test_plans_that_are_cut_keep_those_of_the_sizes_before(self):
        said = '{"batch": 128, "bytes": 5, "launches": "24 launches", "plans": [{"plan": "plan of a", "candidates": []}]}'
        script(self.folder / "bench_step_float", f"import time\nprint('{said}')\nprint('{{\"batch\": 51', end='', flush=True)\ntime.sleep(60)")
        measured = measure.Measured(Folder(self.folder), self.folder / "cache", self.folder)
        with measured, unittest.mock.patch.object(measure, "PRECISIONS", ("float",)), self.assertRaises(stages.Failed) as caught:
            measured.plans(3)
        self.assertIn("float: it was ended after 3 s", str(caught.exception))
        self.assertEqual(list(caught.exception.found["plans"]), ["float 128"])
        self.assertEqual(measured.bytes, {("float", 128): 5})

    def test_a_peer_that_is_missing_costs_its_bars_and_no_more(self):
        peers = {**dict.fromkeys(measure.PRECISIONS, FULL_PEER), "tf32": "import sys; sys.exit('no GPU for PyTorch')"}
        found, text = self.run_with(**peers)
        self.assertEqual(found["PyTorch's programs are ready"]["status"], "failed")
        self.assertIn("no GPU for PyTorch", text)
        steps = found["training step against PyTorch"]
        self.assertIn("tf32 128 over PyTorch's fastest mode is not measured, asked 1.2", steps["reason"])
        self.assertIn("cupola", steps["rows"][1]["milliseconds"])
        self.assertEqual(found["batches made on the device"]["status"], "passed")


class Carried(InFolder):
    def setUp(self):
        super().setUp()
        self.root = self.folder
        for name in ("include", "tests", "cmake", "examples"):
            (self.root / name).mkdir()
        (self.root / "include/a.hpp").write_text("// a\n")
        self.build = self.root / "build"
        for name in carried.PROGRAMS[:2]:
            (self.build / "tests/gpu").mkdir(parents=True, exist_ok=True)
            shutil.copy2(shutil.which("true"), self.build / "tests/gpu" / name)
        (self.build / "CTestTestfile.cmake").write_text(
            f'add_test(gpu/a "{self.build}/tests/gpu/test_gpu_ops" "--source-file=a" "x y")\n'
            'set_tests_properties(gpu/a PROPERTIES RESOURCE_LOCK "gpu")\n'
            f'add_test(gpu/b "{self.build}/tests/gpu/test_cuda_host")\nadd_test(gpu/none "{shutil.which("true")}")\n'
        )
        self.packed = self.root / "packed"
        self.packed.mkdir()

    def pack(self):
        return carried.pack(self.root, self.build, self.packed, carried.PROGRAMS[:2])

    def test_what_is_packed_is_unpacked_with_its_tests(self):
        if shutil.which("ctest") is None:
            self.skipTest("ctest is needed")
        packed = self.pack()
        self.assertEqual(carried.manifest_of(self.packed, self.root), packed)
        first, second = packed["tests"]
        self.assertEqual(first, {"name": "gpu/a", "program": "test_gpu_ops", "arguments": ["--source-file=a", "x y"], "alone": True})
        self.assertEqual(second, {"name": "gpu/b", "program": "test_cuda_host", "arguments": [], "alone": False})
        to = self.root / "unpacked"
        carried.unpack(self.packed, to)
        self.assertEqual(subprocess.run([to / "bin/test_gpu_ops"]).returncode, 0)
        self.assertEqual(carried.what_it_lacks(to / "bin/test_gpu_ops"), [])

    def test_what_does_not_fit_is_refused_with_a_message(self):
        def refused(text):
            with self.assertRaisesRegex(carried.Unusable, text):
                carried.manifest_of(self.packed, self.root)

        refused("there are no carried programs in .*: tests/gpu/pack makes them")
        packed = self.pack()
        manifest, archive = self.packed / "manifest.json", self.packed / "programs.tar.xz"
        (self.root / "include/a.hpp").write_text("// b\n")
        refused("were built from other sources than those here")
        (self.root / "include/a.hpp").write_text("// a\n")
        archive.write_bytes(archive.read_bytes()[:-1])
        refused("is not the archive that was packed")
        manifest.write_text(json.dumps({**packed, "format": 99}))
        refused("has format 99, and this is format 1")
        manifest.write_text("[")
        refused("is not a manifest")
        with self.assertRaisesRegex(SystemExit, "not built: test_gpu_training"):
            carried.pack(self.root, self.build, self.packed, carried.PROGRAMS[:3])

    def test_carried_sources_are_no_failure(self):
        (self.packed / "onednn.tar.xz").write_bytes(b"")
        programs = run.Programs(self.root / "unpacked", self.build)
        report = stages.Report(self.root / "out", "all", "unknown")
        with self.assertRaisesRegex(run.Skipped, "the sources were carried and no programs, which are built here"):
            run.unpack(programs, self.packed, report, 40)
        self.assertEqual(set(programs.unfit), set(carried.PROGRAMS))

    def test_carried_sources_say_which_commit_they_are_of(self):
        if shutil.which("git") is None:
            self.skipTest("git is needed")
        (self.packed / "onednn.tar.xz").write_bytes(b"")
        git = ["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "include"], ["commit", "-q", "-m", "a"]):
            subprocess.run([*git, *words], check=True)
        commit = carried.commit_of(self.root)[0]
        (self.root / ".git/info/exclude").write_text("/build\n/packed\n/out\n")
        subprocess.run([sys.executable, HERE / "card/carried.py", "commit", self.root, self.packed], check=True)
        shutil.rmtree(self.root / ".git")  # the machine with the GPU has the files alone

        def named():
            report = stages.Report(self.root / "out", "all", "unknown")
            with unittest.mock.patch.object(run, "ROOT", self.root), self.assertRaises(run.Skipped):
                run.unpack(run.Programs(self.root / "unpacked", self.build), self.packed, report, 40)
            return report.data["commit"]

        self.assertEqual(named(), commit)
        (self.root / "include/a.hpp").write_text("// b\n")
        self.assertEqual(named(), f"{commit} with changes")

    def test_a_program_that_would_not_start_is_told_by_the_loader(self):
        source, program = self.root / "a.c", self.root / "a.out"
        compiler = shutil.which("cc") or self.skipTest("cc is needed")
        source.write_text("int f(void) { return 0; }\n")
        library = self.root / "libabsent.so"
        subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
        source.write_text("int f(void);\nint main(void) { return f(); }\n")
        subprocess.run([compiler, source, library, "-o", program, f"-Wl,-rpath,{self.root}"], check=True)
        self.assertEqual(carried.what_it_lacks(program), [])
        empty = self.root / "b.c"
        empty.write_text("int g(void) { return 0; }\n")
        subprocess.run([compiler, "-shared", "-fPIC", empty, "-o", library], check=True)
        self.assertRegex(carried.what_it_lacks(program)[0], "undefined symbol: f")
        library.unlink()
        self.assertRegex(carried.what_it_lacks(program)[0], "libabsent.so.*not found")
        self.assertRegex(carried.what_it_lacks(self.root / "no-such-program")[0], "No such file")

    def test_each_library_of_nvidia_is_linked_from_the_first_folder_that_has_it(self):
        own, first, second = (self.root / name for name in ("own", "first", "second"))
        for folder, names in ((own, ["libown.so.1"]), (first, ["libcudnn.so.9"]), (second, ["libcudnn.so.9", "libnccl.so.2", "libz.so"])):
            folder.mkdir()
            for name in names:
                (folder / name).write_text(folder.name)
        origin = carried.link_libraries(self.root / "lib", own, [first, second])
        self.assertEqual(origin, {"libcudnn.so.9": str(first), "libnccl.so.2": str(second)})
        found = {path.name: path.read_text() for path in (self.root / "lib").iterdir()}
        self.assertEqual(found, {"libown.so.1": "own", "libcudnn.so.9": "first", "libnccl.so.2": "second"})

    def test_a_processor_without_the_instructions_is_told(self):
        self.assertEqual(carried.processor_lacks("flags\t\t: fpu avx2 bmi1 bmi2 f16c fma movbe\n"), [])
        self.assertEqual(carried.processor_lacks("flags\t\t: fpu avx2 bmi1 bmi2 movbe\n"), ["f16c", "fma"])


class CarriedTests(InFolder):
    def found(self, code, tests, seconds=20):
        script(self.folder / "program", code)
        chosen = [{"name": name, "program": "program", "arguments": [name], "alone": False, **more} for name, more in tests.items()]
        try:
            return run.tests(Folder(self.folder), chosen, self.folder / "log", seconds), None
        except (stages.Failed, stages.Skipped) as reason:
            return getattr(reason, "found", None), str(reason)

    def test_each_test_has_its_result_and_those_that_are_alone_take_turns(self):
        code = """
import pathlib, sys, time
if sys.argv[-1].startswith("--first="): sys.exit()  # behind the last case
print("[case] one\\n[case] two\\n[doctest] test cases:  2 |  2 passed")
if sys.argv[1] == "bad": print("a_test.cpp:3: ERROR: CHECK( 1 == 2 ) is NOT correct!"); sys.exit(1)
if sys.argv[1] == "crash": import os; os.abort()
if sys.argv[1] == "none": print("skipped: there is no GPU"); sys.exit(77)
if sys.argv[1].startswith("alone"):
    mark = pathlib.Path(sys.argv[0]).with_name("mark"); mark.touch(exist_ok=False); time.sleep(0.2); mark.unlink()
"""
        alone = {"alone": True}
        found, reason = self.found(code, {"good": {}, "alone1": alone, "alone2": alone, "alone3": alone})
        self.assertIsNone(reason)
        self.assertEqual(({test["status"] for test in found["tests"]}, found["cases"]), ({"passed"}, 8))
        found, reason = self.found(code, {"good": {}, "bad": {}, "crash": {}, "none": {}})
        self.assertEqual([test["status"] for test in found["tests"]], ["passed", "failed", "failed", "skipped"])
        self.assertEqual(reason, "2 of 4 failed: bad, crash")
        self.assertEqual(found["lines"], ["crash: it was ended by signal 6, in the case 'two'", "a_test.cpp:3: CHECK( 1 == 2 ) is NOT correct!"])
        self.assertIn("--- bad: failed\n", (self.folder / "log").read_text())
        self.assertEqual(self.found(code, {"none": {}})[1], "1 of 1 did not run: none: there is no GPU")
        self.assertEqual(self.found(code, {})[1], "no test of this kind was built")

    def test_a_test_that_hangs_is_ended_and_the_rest_is_skipped(self):
        begin = time.monotonic()
        names = {f"{i}": {} for i in range(6)}
        found, reason = self.found("import time; time.sleep(60)", names, 4)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual([test["status"] for test in found["tests"]], ["failed"] * 4 + ["skipped"] * 2)
        self.assertIn("4: no time was left for it", found["lines"])

    def test_a_case_that_crashes_or_hangs_costs_itself_and_no_more(self):
        code = """
import os, sys, time
first = next((int(word.partition("=")[2]) for word in sys.argv if word.startswith("--first=")), 1)
assert os.environ["CUPOLA_TEST_NAMES"]
for number, name in enumerate(["fine", "crashes", "fine too", "hangs", "exits", "fine again"], 1):
    if number < first: continue
    print(f"[case] {name}", flush=True)
    if name == "crashes":
        print("[doctest] test cases:  2 |  1 passed", flush=True)
        os.abort()
    if name == "hangs": time.sleep(60)
    if name == "exits": sys.exit(0)
print("[doctest] test cases:  6 |  6 passed")
"""
        begin = time.monotonic()
        with unittest.mock.patch.object(run, "one_test", lambda test, programs, seconds, quiet, of=run.one_test: of(test, programs, seconds, 1.0)):
            found, reason = self.found(code, {"t": {}}, 30)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual([(test["name"], test["status"]) for test in found["tests"]],
                         [("t", "failed"), ("t from case 3", "failed"), ("t from case 5", "failed"), ("t from case 6", "passed")])  # fmt: skip
        self.assertEqual(found["lines"][0], "t: it was ended by signal 6, in the case 'crashes'")
        self.assertRegex(found["lines"][1], r"^t from case 3: it was ended after \d s, in the case 'hangs'$")
        self.assertEqual(found["lines"][2], "t from case 5: it ended with status 0 and without a summary, in the case 'exits'")
        # Each case is counted once, whatever doctest's summaries say.
        self.assertEqual((reason, found["cases"]), ("3 of 4 failed: t, t from case 3, t from case 5", 6))
        log = (self.folder / "log").read_text()
        self.assertEqual(len(re.findall(r"^\[case\] fine", log, re.M)), 3)

    def test_the_case_in_which_the_time_is_over_is_named(self):
        found, _ = self.found('import time; print("[case] a, b", flush=True); time.sleep(60)', {"t": {}}, 3)
        self.assertRegex(found["lines"][0], "^t: it was ended after 2 s, in the case 'a, b', and no time was left for those after it$")

    def test_a_program_that_cannot_be_started_costs_its_test_and_no_more(self):
        script(self.folder / "program", 'print("[doctest] test cases:  2 |  2 passed")')
        (self.folder / "broken").write_text("no program")
        (self.folder / "broken").chmod(0o755)
        chosen = [{"name": name, "program": name, "arguments": [], "alone": False} for name in ("broken", "program")]
        with self.assertRaises(stages.Failed) as caught:
            run.tests(Folder(self.folder), chosen, self.folder / "log", 20)
        self.assertEqual([test["status"] for test in caught.exception.found["tests"]], ["failed", "passed"])
        self.assertEqual(caught.exception.found["lines"], ["broken: it could not be started: Exec format error"])

    def test_the_result_of_each_test_is_reported_when_it_has_ended(self):
        report = stages.Report(self.folder / "out", "all", "abc")
        script(self.folder / "program", 'import sys, time; print("[doctest] test cases:  2 |  2 passed", flush=True); time.sleep(int(sys.argv[1]))')
        chosen = [{"name": name, "program": "program", "arguments": [seconds], "alone": False} for name, seconds in (("quick", "0"), ("slow", "3"))]
        known = []

        def body(seconds):
            def when_known(found):
                report.known(found)
                known.append(json.loads((self.folder / "out/report.json").read_text())["stages"][0])

            return run.tests(Folder(self.folder), chosen, self.folder / "log", seconds, known=when_known)

        with contextlib.redirect_stdout(io.StringIO()):
            self.assertTrue(report.stage("tests", 30, body))
        first, second = known
        self.assertEqual((first["status"], [test["name"] for test in first["tests"]]), ("running", ["quick"]))
        self.assertEqual([test["name"] for test in second["tests"]], ["quick", "slow"])
        report.known({"late": True})  # nothing runs
        self.assertNotIn("late", report.data["stages"][0])

    def test_the_stages_share_the_tests_out(self):
        names = ["gpu/ops/linear", "gpu/training", "gpu/none_for_it", "gpu/run", "gpu/data", "device/cuda"]
        programs = Folder(self.folder, tests=[{"name": name} for name in names])
        chosen = {which: [test["name"] for test in run.chosen_tests(programs, which)] for which in ("training", "typed")}
        self.assertEqual(chosen, {"training": ["gpu/training"], "typed": ["gpu/ops/linear", "gpu/data", "device/cuda"]})


# For the whole command on a machine without a GPU.
NVIDIA_SMI = "echo 'NVIDIA Synthetic GPU, 580.1, 1000 MiB, 1980 MHz'"


class WholeCommand(unittest.TestCase):
    """tests/gpu/run and then tests/gpu/report, with stand-ins for nvidia-smi and for the carried programs."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder_path = pathlib.Path(folder.name)
        script(folder_path / "tools/nvidia-smi", NVIDIA_SMI, python=False)
        packed = folder_path / "packed"
        write_programs(folder_path / "staged/bin")
        (folder_path / "staged/own").mkdir()
        packed.mkdir()
        with tarfile.open(packed / "programs.tar.xz", "w:xz") as packing:
            for part in ("bin", "own"):
                packing.add(folder_path / "staged" / part, part)
        names = [path.name for path in (folder_path / "staged/bin").iterdir()]
        tests = [
            {"name": name, "program": program, "arguments": [], "alone": False}
            for name, program in (("gpu/ops/linear", "test_gpu_ops"), ("gpu/data", "test_gpu_ops"), ("gpu/training", "test_gpu_training"))
        ]
        archive = carried.hashlib.sha256((packed / "programs.tar.xz").read_bytes()).hexdigest()
        manifest = {
            "format": carried.FORMAT, "commit": "0123456789ab", "changed": False, "sources": carried.sources_digest(HERE.parent.parent),
            "archive": archive, "programs": {name: {} for name in names}, "libraries": [], "tests": tests,
        }  # fmt: skip
        (packed / "manifest.json").write_text(json.dumps(manifest))
        path = f"{folder_path / 'tools'}{os.pathsep}{os.environ['PATH']}"
        cls.out = folder_path / "out"
        # Scripts are no programs for the loader, so ask it nothing.
        patched = f"import runpy, sys; sys.path.insert(0, {str(HERE / 'card')!r}); import carried; carried.what_it_lacks = lambda program, seconds: []; "
        patched += f"import bench.measure as m; m.TURN_SECONDS, m.ROUNDS = 0.005, 2; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
        cls.ended = subprocess.run(
            [sys.executable, "-c", patched, HERE / "run", cls.out, "all", "--carried", packed, "--build", folder_path / "build/gpu"],
            capture_output=True, text=True, timeout=500, env={**os.environ, "PATH": path},
        )  # fmt: skip
        cls.said = json.loads((cls.out / "report.json").read_text())

    def test_every_stage_has_its_turn_and_says_how_it_ended(self):
        self.assertEqual(self.ended.stderr, "")
        self.assertEqual((self.said["commit"], self.said["ended"], self.said["command"]), ("0123456789ab", True, "all"))
        found = {stage["name"]: stage for stage in self.said["stages"]}
        self.assertEqual(list(found), [stage.name for stage in stages_of("all")])
        for name in ("machine", "an empty chain", "five convolution plans, cold and warm", "the step in bfloat16", "typed tests", "trainings against Host", "the plans and their candidates", "peak rates"):
            self.assertEqual(found[name]["status"], "passed", found[name])
        # Two programs were not carried, and there is nothing here to build them with.
        self.assertIn("two_processes", found["carried programs"]["unfit"])
        self.assertEqual(found["build of what was not carried"]["status"], "failed")
        self.assertLessEqual(sum(1 for path in self.out.rglob("*") if path.is_file()), 8)

    def test_the_kernels_of_a_card_with_a_prediction_stand_beside_it(self):
        folder = self.folder / "h200"
        folder.mkdir()
        said = json.loads((self.out / "report.json").read_text().replace("NVIDIA Synthetic GPU", "NVIDIA H200"))
        (folder / "report.json").write_text(json.dumps(said))
        written = ended(HERE / "report", folder, "--to", folder)
        self.assertEqual((written.returncode, written.stderr), (0, ""))
        text = (folder / "gpu-h200.md").read_text()
        section = text.partition("## The kernels beside their prediction")[2].partition("\n## ")[0]
        self.assertIn("bfloat16 128:", section)
        self.assertRegex(section, r"\| `all` +\| \d+ +\| [\d.]+ +\| [\d.]+ +\| [\d.]+ +\| [\d.]+ +\| [\d.]+")
        self.assertIn("did not run", section)

    def test_its_report_becomes_a_page_in_another_folder_only(self):
        to = self.folder / "pages"
        to.mkdir()
        written = ended(HERE / "report", self.out, "--to", to)
        self.assertEqual((written.returncode, written.stderr), (0, ""))
        self.assertEqual(sorted(path.name for path in to.iterdir()), ["gpu-synthetic-gpu.json", "gpu-synthetic-gpu.md"])
        text = (to / "gpu-synthetic-gpu.md").read_text()
        self.assertNotIn("beside their prediction", text)
        for part in ("# On one NVIDIA Synthetic GPU", "commit 0123456789ab", "## Skipped and failed stages", "## Goals", "## The training step",
                     "## Memory", "## All stages"):  # fmt: skip
            self.assertIn(part, text)
        # The rates of the stand-in allow no 0.13 ms.
        self.assertRegex(text, r"\| bfloat16 128, milliseconds \(the goal is 0.13; the floors of this card allow no less\) +\| <= 1\.\d+ +\| 0.128 +\| yes")
        self.assertRegex(text, r"## What a kernel takes at least\n\n```text\n1.50 us per kernel and 1.00 us to the next one, measured on this card\n")
        self.assertIn("made in 2.00, 1.50, 1.00 s\n", text)
        self.assertIn("predicted at the rates of this card", text)
        self.assertLess(max(map(len, text.splitlines())), 400)
        # The run has written it too, for a folder that nobody carries back whole.
        self.assertEqual((self.out / "gpu-synthetic-gpu.md").read_text(), text)
        self.assertRegex(text, r"\| two processes as two ranks +\| skipped")


TRAINER = """
import json, pathlib, signal, sys, time
flags = sys.argv
value = lambda name: flags[flags.index(name) + 1]
folder = pathlib.Path(value("--train-dir")); folder.mkdir(exist_ok=True)
with open(folder.parent / "calls", "a") as calls: print(*flags[1:], file=calls)
if value("--data-dir").endswith("no-images"): sys.exit("cifar10_train: no-images has no images")
steps, asked = int(value("--max-steps")), []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
begin = 70 if "--resume" in flags else 0
print(json.dumps({"step": begin, "loss": 2.5, "seconds_per_step": 0.001}), flush=True)
if steps > 1000 and value("--data-dir").endswith("slow"):
    while not asked: time.sleep(0.01)
    (folder / "model-70.safetensors").touch()
    print("stopped by signal 15 after 70 steps", flush=True); sys.exit(143)
for weights, precision in (("trained parameters", 0.8), ("moving averages", 0.87)):
    print(json.dumps({"precision": precision, "step": steps, "correct": 1, "images": 2, "weights": weights}))
"""


class Recipes(InFolder):
    def setUp(self):
        super().setUp()
        self.program = self.folder / "cifar10_train"
        script(self.program, TRAINER)

    def calls(self):
        return [line.split() for line in (self.folder / "calls").read_text().splitlines()]

    def test_every_recipe_is_one_and_is_in_the_table(self):
        page = (HERE.parent / "benchmarks/recipes/README.md").read_text()
        self.assertGreaterEqual(len(recipe_runner.recipes()), 2)
        for name in recipe_runner.recipes():
            recipe_runner.read(name)
            self.assertIn(f"| `{name}` |", page)
        known = ended(HERE.parent / "benchmarks/recipes/train.py", "nope", ".", ".", "--program", "x")
        self.assertEqual((known.returncode, known.stderr[:32]), (1, "error: there is no recipe 'nope'"))

    def test_what_is_no_recipe_is_refused(self):
        good = json.loads((HERE.parent / "benchmarks/recipes/tutorial.json").read_text())
        for changes, text in (
            ({"steps": "many"}, "has no 'steps' of the right kind"),
            ({"flgas": []}, "has unknown fields: flgas"),
            ({"goal": {"precision": 1}}, "'goal' has 'weights'"),
            ({"cuda": ["--max-steps", "3"]}, "the runner sets --max-steps"),
        ):
            (self.folder / "x.json").write_text(json.dumps({**good, **changes}))
            with self.assertRaisesRegex(recipe_runner.Refused, text):
                recipe_runner.read("x", self.folder)

    def test_a_training_to_its_end_has_its_accuracy_and_its_goal(self):
        result = recipe_runner.train(self.program, "data", "tutorial", self.folder)
        self.assertEqual((result["steps"], result["ended"], result["goal"]["met"]), (1_000_000, True, True))
        self.assertEqual(json.loads((self.folder / "recipe.json").read_text()), result)
        [call] = self.calls()
        self.assertEqual(call[call.index("--device") + 1], "cuda")
        self.assertNotIn("--resume", call)
        self.assertIn("precision @ 1 with the moving averages: 0.8700", recipe_runner.lines_of(result))

    def test_a_training_without_time_is_evaluated_where_it_stopped_and_goes_on_later(self):
        with unittest.mock.patch.object(recipe_runner, "EVALUATION_SECONDS", 5):
            result = recipe_runner.train(self.program, "slow", "tutorial", self.folder, seconds=6)
        self.assertEqual((result["steps"], result["ended"]), (70, False))
        first, second = self.calls()
        self.assertEqual((second[second.index("--max-steps") + 1], "--resume" in second), ("70", True))
        recipe_runner.train(self.program, "data", "tutorial", self.folder)
        self.assertIn("--resume", self.calls()[2])

    def test_a_training_without_an_accuracy_says_why(self):
        with self.assertRaisesRegex(recipe_runner.Refused, "ended with status 1 and no accuracy: cifar10_train: no-images has no images"):
            recipe_runner.train(self.program, "no-images", "tutorial", self.folder)

    def test_it_is_a_stage_of_its_own_command(self):
        out = self.folder / "out"
        settings = argparse.Namespace(**{**vars(settings_for(self.folder)), "data": self.folder / "data"})
        made = run.stages_of("recipe", None, out, settings, Folder(self.folder), measure.Measured(None, out, out))
        self.assertEqual([stage.name for stage in made], ["machine", "carried programs", "CIFAR-10 by the recipe tutorial"])
        found = made[-1].body(60)
        self.assertEqual(found["recipe"]["steps"], 1_000_000)
        self.assertTrue((out / "recipe.json").exists())
        settings.data = None
        with self.assertRaisesRegex(stages.Failed, "--data is missing"):
            made[-1].body(60)


class Page(InFolder):
    def setUp(self):
        super().setUp()
        self.report = load("report")
        self.data = {
            "format": stages.FORMAT, "command": "all", "commit": "abc", "started": "2026-01-02T03:04:05Z", "ended": True, "seconds": 9.0,
            "machine": {"GPU": "NVIDIA H100 80GB HBM3, 580.1, 81559 MiB, 1980 MHz"},
            "stages": [
                {"name": "machine", "status": "passed", "seconds": 1.0},
                {"name": "typed tests", "status": "failed", "reason": "a | b", "seconds": 2.0, "cases": 5,
                 "tests": [{"name": "x", "status": "passed"}, {"name": "y", "status": "failed"}]},
                {"name": "peak rates", "status": "passed", "seconds": 1.0, "lines": ["float: 50 TFLOP/s"],
                 "bars": [{"what": "w", "asked": 2.0, "measured": 1.5, "met": False}, {"what": "v", "asked": 1.0, "measured": None, "met": None}]},
            ],
        }  # fmt: skip

    def refused(self, text, cut_short=False, **changes):
        (self.folder / "report.json").write_text(json.dumps({**self.data, **changes}))
        with self.assertRaisesRegex(self.report.Refused, text):
            self.report.read(self.folder, cut_short)

    def test_the_page_has_what_failed_before_what_was_reached(self):
        text = self.report.page_of(self.data)
        self.assertRegex(text, r"\| typed tests \| failed \| a \\\| b +\|")
        self.assertRegex(text, r"\| w +\| >= 2 +\| 1.5 +\| \*\*no\*\* \|")
        self.assertRegex(text, r"\| v +\| > 1 +\| not measured \|  +\|")
        self.assertIn("0 of 2 are met.", text)
        self.assertRegex(text, r"\| typed tests +\| failed +\| 2.0 +\| 1 of 2 files, 5 cases \|")
        self.assertEqual(self.report.card_of(self.data), ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"))
        self.assertNotIn("cut short", text)

    def test_what_is_no_whole_run_on_a_gpu_is_refused(self):
        with self.assertRaisesRegex(self.report.Refused, "cannot be read: No such file"):
            self.report.read(self.folder)
        self.refused("has format 1, and .* reads format 2", format=1)
        self.refused("'stages' is missing", stages=None)
        self.refused("a stage has no name or no status", stages=[{"name": "machine"}])
        self.refused("without a GPU: its stage 'machine' is missing", stages=[])
        self.refused("without a GPU: its stage 'machine' is failed", stages=[{"name": "machine", "status": "failed"}])
        self.refused("without a GPU", machine={})
        self.refused("does not say which commit", commit="unknown")
        self.refused("was cut short in 'peak rates'", ended=False)
        (self.folder / "report.json").write_text("{")
        with self.assertRaisesRegex(self.report.Refused, "is not JSON"):
            self.report.read(self.folder)
        (self.folder / "report.json").write_text(json.dumps({**self.data, "ended": False}))
        self.assertIn("**The run was cut short", self.report.page_of(self.report.read(self.folder, True)))

    def test_the_command_writes_nothing_for_a_folder_that_it_refuses(self):
        to = self.folder / "pages"
        to.mkdir()
        written = ended(HERE / "report", self.folder, "--to", to)
        self.assertEqual((written.returncode, written.stdout), (1, ""))
        self.assertRegex(written.stderr, r"^error: .*report.json cannot be read: [^\n]*\n$")
        self.assertEqual(list(to.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
