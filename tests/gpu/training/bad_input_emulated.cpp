// SPDX-License-Identifier: Apache-2.0
//
// What a training on `Cuda` says of a machine that it cannot use, on emulated GPUs: an old card, an old driver, hidden GPUs,
// too little memory, and a GPU that is lost in the middle of a step. Each is one message with names and numbers, nothing hangs
// or stays allocated, and the checkpoints on disk are whole.
#include "../../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/checkpoint_every.hpp>

#include "../../child_process.hpp"
#include "../../io/file_support.hpp"
#include "../../throws_with.hpp"
#include "../emulator/control.hpp"
#include "../emulator/listener.hpp"

namespace {

struct Net : Sequential<Input<6, 6, 3>, Conv2d<8, 3>, ReLU, Flatten, Linear<10>> {};
using Training = DataParallel<Net, CrossEntropy<10>, Sgd, ConcatMean, Cuda>;

constexpr std::int64_t batch = 4, features = 6 * 6 * 3, samples = 53, steps = 12;

class Batches {
public:
    Batches() : values_(samples * features * sizeof(float)), labels_(samples * sizeof(std::int32_t)) {
        auto* const values = reinterpret_cast<float*>(values_.data());
        initialize({values, samples * features}, normal(1.0), 1, 1, 11, 0);
        for (std::int64_t n = 0; n < samples; ++n)
            reinterpret_cast<std::int32_t*>(labels_.data())[n] = static_cast<std::int32_t>(n % 10);
    }
    BatchView operator()(std::int64_t step, int replica, CudaContext&) const {
        const std::int64_t first = (step * 7 + replica * 11) % (samples - batch);
        return {reinterpret_cast<const float*>(values_.data()) + first * features,
                reinterpret_cast<const std::int32_t*>(labels_.data()) + first, batch, Net::input_shape};
    }

private:
    impl::CudaPinned values_, labels_;
};

Training::Options options_of(int devices) {
    Training::Options options;
    options.replicas = 2;
    options.devices = devices;
    options.batch_size = batch;
    options.seed = 5;
    options.device.deterministic = true;
    options.optimizer = {.learning_rate = 0.05, .momentum = 0.9};
    return options;
}

/// The machine as it was.
struct Restored : NotCopied {
    Restored() = default;
    ~Restored() {
        emulator::mend();
        emulator::set_devices(4);
        emulator::set_capability(9, 0);
        emulator::set_driver(CUDART_VERSION);
        emulator::set_memory(std::size_t{4} << 30);
        unsetenv("CUDA_VISIBLE_DEVICES");
        while (cudaGetLastError() != cudaSuccess) {
        }
    }
};

/// The message of a training that cannot be made; nothing may stay allocated.
template <class E>
std::string refused(int devices = 1) {
    const std::string message = message_of<E>([&] { Training training(options_of(devices)); });
    CHECK(emulator::memory_in_use() == 0);
    return message;
}

/// Makes the steps up to number `steps` from the newest checkpoint in the folder, with a checkpoint every 3.
/// `before` is called before the first step, when all plans have been made.
TrainingState run(
    const std::string& folder, int devices, std::unique_ptr<Training>& training,
    const std::function<void()>& before = [] {}) {
    training = std::make_unique<Training>(options_of(devices));
    const Batches batches;
    CheckpointDirectory directory(folder);
    const FoundCheckpoint found = directory.newest_valid(Net::layers);
    if (found.checkpoint) training->restore(found.checkpoint->state);
    before();
    fit(*training, batches, {.steps = steps - training->step()}, CheckpointEvery(*training, directory, {.every = 3}));
    return training->state();
}

/// As an example's main function.
[[noreturn]] void run_as_program(const std::string& folder, std::int64_t pieces) {
    try {
        std::unique_ptr<Training> training;
        static_cast<void>(run(folder, 1, training, [&] { emulator::fail_device(0, pieces); }));
        std::_Exit(EXIT_SUCCESS);
    } catch (const Error& error) {
        std::printf("error: %s\n", error.what());
        std::fflush(stdout);
        std::exit(EXIT_FAILURE);
    }
}

}  // namespace

TEST_CASE("a card that the program has no code for is refused by its name, its capability and what is needed") {
    const Restored restored;
    emulator::set_capability(8, 6);
    const std::string message =
        "GPU 0 (Emulated GPU) has compute capability 8.6, and this program was built for 9.0 "
        "(cudaErrorNoKernelImageForDevice): build it again with -DCMAKE_CUDA_ARCHITECTURES=86, or choose another GPU by "
        "CUDA_VISIBLE_DEVICES";
    CHECK(refused<DeviceError>() == message);
    CHECK(refused<DeviceError>(2).substr(4) == message.substr(4));  // one of the two GPUs is named
    emulator::set_capability(7, 0);
    CHECK(refused<DeviceError>() == "GPU 0 (Emulated GPU) has compute capability 7.0, and CUDA 13 needs 7.5 or more");
    // The launch of a kernel says it too.
    emulator::set_capability(9, 0);
    CudaContext context(0, {});
    emulator::set_capability(8, 6);
    std::int32_t value = 0;
    CHECK(message_of<DeviceError>([&] {
              impl::launch(context, 1, impl::CopyToPinned<std::int32_t>{&value, &value});
          }) == message);
    // A newer one runs the PTX.
    emulator::set_capability(12, 0);
    CHECK_NOTHROW(Training(options_of(1)));
}

TEST_CASE("a missing driver, and one that is too old, are refused with both versions") {
    const Restored restored;
    emulator::set_driver(12080);
    CHECK(
        refused<DeviceError>() ==
        "the NVIDIA driver of this machine is for CUDA 12.8, and this program was built with CUDA 13.0: install a newer "
        "driver");
    emulator::set_driver(0);
    CHECK(
        refused<DeviceError>() ==
        "no NVIDIA driver was found, or it could not be loaded; a training on Cuda needs a GPU with a driver for CUDA 13.0; "
        "a training on Host needs neither");
}

TEST_CASE("hidden GPUs are refused with the variable that hides them, and those that are left are used") {
    const Restored restored;
    const std::string before = "this process sees no NVIDIA GPU: there is a driver for CUDA 13.0, but no device ";
    emulator::set_devices(0);
    CHECK(refused<DeviceError>() == before + "(CUDA_VISIBLE_DEVICES is not set)");
    emulator::set_devices(4);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    CHECK(refused<DeviceError>() == before + "(CUDA_VISIBLE_DEVICES is empty, which hides all)");
    setenv("CUDA_VISIBLE_DEVICES", "9", 1);
    CHECK(refused<DeviceError>() == before + "(CUDA_VISIBLE_DEVICES is 9, which may hide them)");
    setenv("CUDA_VISIBLE_DEVICES", "2", 1);
    CHECK(refused<DeviceError>(2) == "there is no GPU 1: this process sees 1, GPU 0");
    CHECK_NOTHROW(Training(options_of(1)));
}

TEST_CASE("a plan that does not fit the card is refused before anything is allocated, with its parts and a remedy") {
    const Restored restored;
    emulator::set_memory(40'000);
    const std::string message = refused<OutOfMemory>();
    CAPTURE(message);
    CHECK(contains(message, "2 replicas on 1 device do not fit: 40.0 kB are available; memory: "));
    for (const char* const part :
         {" parameters + ", " optimiser state + ", " activations + ", " saved + ", " packed weights + ", " scratch) + ",
          " gradients of 2 replicas + ", " their batches + ", " average; "})
        CHECK(contains(message, part));
    CHECK(contains(message, "the gradients are the largest part: choose fewer replicas with larger batches"));
    const auto remedy = [](int replicas, std::int64_t batch_size) {
        Training::Options options = options_of(1);
        options.replicas = replicas;
        options.batch_size = batch_size;
        const std::string all = message_of<OutOfMemory>([&] { Training training(options); });
        return all.substr(std::min(all.size(), all.rfind("; ") + 2));
    };
    CHECK(
        remedy(1, 1000) ==
        "the activations are the largest part: choose a smaller batch_size, with more gradient_accumulation_steps for "
        "steps of as many samples, or bfloat16");
    CHECK(remedy(1, batch) ==
          "the parameters and the optimiser's state are the largest part: choose fewer devices, an optimiser with less "
          "state, or a smaller network");
    CHECK(emulator::memory_in_use() == 0);
}

TEST_CASE("devices that share a GPU need its memory together, and are refused where there are too few GPUs") {
    const Restored restored;
    Training::Options options = options_of(2);
    const auto message = [&] { return message_of<OutOfMemory>([&] { Training training(options); }); };
    // A device needs about 51 kB in the first check.
    emulator::set_memory(90'000);
    options.device.devices_per_gpu = 2;
    CHECK(contains(message(), "2 replicas on 2 devices do not fit: 90.0 kB are available; memory: "));
    options.device.devices_per_gpu = 1;
    emulator::set_memory(40'000);
    CHECK(contains(message(), "2 replicas on 2 devices do not fit: 80.0 kB are available; memory: "));
    emulator::set_memory(2'000'000);
    CHECK_NOTHROW(Training(options));
    // With three devices, the GPU that two share is the smaller one.
    options.replicas = options.devices = 3;
    options.device.devices_per_gpu = 2;
    emulator::set_memory(80'000);
    CHECK(contains(message(), "3 replicas on 3 devices do not fit: 120.0 kB are available; memory: "));
    // The memory that is taken on the GPUs counts, also if they are not the first.
    emulator::set_memory(2'000'000);
    options.device.first_gpu = 2;
    CHECK_NOTHROW(Training(options));
    {
        const CudaContext on_last(3, {});
        const auto scope = on_last.team();
        const CudaArena taken(1'930'000, "another program");
        CHECK(contains(message(), "3 replicas on 3 devices do not fit: "));
    }
    options.device.first_gpu = 3;
    CHECK(message_of<DeviceError>([&] { Training training(options); }) ==
          "there is no GPU 4 for device 2 with devices_per_gpu 2: this process sees 4, GPUs 0 to 3");
    options.device.devices_per_gpu = 0;
    CHECK(message_of<InvalidArgument>([&] { Training training(options); }) ==
          "devices_per_gpu must be 1 or more, not 0");
    CHECK(emulator::memory_in_use() == 0);
}

TEST_CASE("the contexts of devices that share a GPU have their own streams, handles and memory") {
    const CudaContext first(0, {.devices_per_gpu = 2}), second(1, {.devices_per_gpu = 2}),
        third(2, {.devices_per_gpu = 2});
    CHECK((first.gpu() == 0 && second.gpu() == 0 && third.gpu() == 1));
    CHECK((first.ordinal() == 0 && second.ordinal() == 1 && third.ordinal() == 2));
    CHECK((first.stream() != second.stream() && first.cudnn() != second.cudnn() && first.cublas() != second.cublas()));
    CHECK(first.sums() != second.sums());
    CHECK_FALSE(first.place() == second.place());
    // A handle is destroyed on its device: the emulator checks it.
}

TEST_CASE("a GPU that is lost in a step ends the run with its steps, and the run continues from its last checkpoint") {
    const Restored restored;
    const io_tests::TemporaryFolder undisturbed;
    std::unique_ptr<Training> training;
    std::int64_t pieces = 0;
    const std::vector<float> whole =
        run(undisturbed.path(), 1, training, [&] { pieces = emulator::pieces(); }).parameters;
    training.reset();
    pieces = emulator::pieces() - pieces;
    const Batches later_batches;
    int resumed = 0;
    for (const int devices : {1, 2}) {
        for (const cudaError_t code : {cudaErrorIllegalAddress, cudaErrorECCUncorrectable, cudaErrorLaunchFailure}) {
            for (const std::int64_t part : {3, 5, 7}) {
                CAPTURES(devices, code, part);
                const io_tests::TemporaryFolder folder;
                const auto fails = [&] { emulator::fail_device(devices - 1, pieces * part / 8 / devices, code); };
                const std::string message =
                    message_of<DeviceLost>([&] { static_cast<void>(run(folder.path(), devices, training, fails)); });
                CAPTURE(message);
                REQUIRE(contains(message, "a device was lost in "));
                CHECK((contains(message, "in one of the steps ") || contains(message, "in step ")));
                CHECK(
                    contains(message, text(" failed on device ", devices - 1, " with ", cudaGetErrorName(code), ": ")));
                CHECK(contains(message,
                               "; this process cannot use it again: start another one, from the last checkpoint"));
                // Every later call fails too, and says so.
                CHECK_FALSE(training->healthy());
                CHECK(
                    contains(message_of<DeviceLost>([&] { training->queue(later_batches); }), cudaGetErrorName(code)));
                // The state is that of the first device.
                if (devices == 1) {
                    CHECK(contains(message_of<DeviceLost>([&] { static_cast<void>(training->state()); }),
                                   cudaGetErrorName(code)));
                }
                training.reset();
                CHECK(emulator::memory_in_use() == 0);
                // What is on disk is whole: the next process has a device that works.
                emulator::mend();
                while (cudaGetLastError() != cudaSuccess) {
                }
                const std::vector<CheckpointFile> files = CheckpointDirectory(folder.path()).list();
                for (const CheckpointFile& file : files)
                    CHECK_NOTHROW(static_cast<void>(read_checkpoint(file.path, Net::layers)));
                resumed += files.empty() ? 0 : 1;
                CHECK(run(folder.path(), devices, training).parameters == whole);
                training.reset();
            }
        }
    }
    CHECK(resumed >= 12);  // otherwise the devices failed before the first checkpoint
}

TEST_CASE("child: a program whose GPU is lost" * doctest::skip()) {
    run_as_program(std::getenv("CUPOLA_TEST_FOLDER"), std::atoi(std::getenv("CUPOLA_TEST_PIECES")));
}

TEST_CASE("a program whose GPU is lost ends with one message and a status that is not 0") {
    for (const char* const pieces : {"40", "150"}) {
        const io_tests::TemporaryFolder folder;
        const ChildResult child = run_in_child("child: a program whose GPU is lost",
                                               {{"CUPOLA_TEST_PIECES", pieces}, {"CUPOLA_TEST_FOLDER", folder.path()}});
        CAPTURE(child.output);
        CHECK(child.status == EXIT_FAILURE);
        const std::string before = "error: a device was lost in ";
        const std::size_t place = child.output.find(before);
        REQUIRE(place != std::string::npos);
        CHECK(child.output.find("error: ", place + 1) == std::string::npos);
        CHECK(contains(child.output, "with cudaErrorIllegalAddress: an illegal memory access was encountered"));
    }
}
