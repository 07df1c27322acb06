// SPDX-License-Identifier: Apache-2.0
//
// Files for torch.load, read back here; tests/interop reads them with PyTorch.
#include <cupola/io/torch_writer.hpp>

#include "../test.hpp"

#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/zip_directory.hpp>
#include <cupola/io/torch_file.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <throws_with.hpp>

#include "checkpoint_support.hpp"
#include "file_support.hpp"

using namespace io_tests;

namespace {

struct Normed : Sequential<Input<4, 4, 2>, Named<"conv", Conv2d<3, 3>>, Named<"norm", BatchNorm2d<>>, Flatten,
                           Named<"fc", Linear<5>>> {};

TrainingState state_of_normed() {
    TrainingState state{.parameters = arena<Normed>(1)};
    state.buffers.resize(static_cast<std::size_t>(Normed::buffer_elements));
    std::iota(state.buffers.begin(), state.buffers.end(), 500.0F);
    return state;
}

}  // namespace

TEST_CASE("parameters and running statistics are read back as they were written") {
    const TemporaryFolder folder;
    const std::string path = folder.path("x.pth");
    const TrainingState state = state_of_normed();
    write_torch_file(path, Normed::layers, state);
    const Checkpoint read = read_checkpoint(path, Normed::layers);
    CHECK(read.state.parameters == state.parameters);
    CHECK_FALSE(read.resumable);
    const TorchFile file(path);
    CHECK(file.tensors().size() == 8);
    CHECK(file.find("conv.weight")->extents == "3,2,3,3");
    // The first output, input channel 1, row 0, column 2: channels are last here and second there.
    float value = 0;
    file.read_floats(*file.find("conv.weight"), 9 + 2, std::span(&value, 1));
    CHECK(value == state.parameters[2 * 2 + 1]);
    std::vector<float> means(3);
    file.read_floats(*file.find("norm.running_mean"), means.data());
    CHECK(means == std::vector<float>{500, 501, 502});
    for (const SafeTensor& tensor : file.tensors()) CHECK(tensor.begin % 64 == 0);
    // The same state is the same file.
    write_torch_file(folder.path("y.pth"), Normed::layers, state);
    CHECK(read_bytes(path) == read_bytes(folder.path("y.pth")));
}

TEST_CASE("a state of another network, or one that is not finite, is not written") {
    const TemporaryFolder folder;
    const std::string path = folder.path("x.pth");
    const auto refusal = [&](const TrainingState& state) {
        return message_of<InvalidArgument>([&] { write_torch_file(path, Normed::layers, state); });
    };
    TrainingState state = state_of_normed();
    state.parameters.pop_back();
    const std::size_t size = state.parameters.size();
    CHECK(refusal(state) ==
          text(path, ": the parameters of the state have ", size, " elements, and the network's have ", size + 1));
    state = state_of_normed();
    state.buffers.clear();
    CHECK(contains(refusal(state), ": the running statistics of the state have 0 elements, and the network's have "));
    state = state_of_normed();
    state.parameters[5] = std::numeric_limits<float>::infinity();
    CHECK(refusal(state) == path + " is not written: the state's conv.weight is inf at [0, 0, 2, 1]");
    state = state_of_normed();
    state.tensors = state_tensors(Net::layers);
    CHECK(refusal(state) != "(no exception)");
    CHECK(folder.names().empty());
}

TEST_CASE("a zip archive has the checksums of its entries, and numbers of more than 32 bits in ZIP64") {
    CHECK(impl::crc32(std::as_bytes(std::span("123456789", 9))) == 0xCBF4'3926);
    CHECK(impl::crc32(std::as_bytes(std::span("9", 1)), impl::crc32(std::as_bytes(std::span("12345678", 8)))) ==
          0xCBF4'3926);
    const TemporaryFolder folder;
    for (const std::uint64_t zip64_from :
         {std::uint64_t{1}, std::uint64_t{4}, std::uint64_t{200}, impl::ZipWriter::largest}) {
        const std::string path = folder.path("z");
        impl::ZipWriter writer(path, zip64_from);
        writer.add("a", "xyz");
        writer.begin("folder/b", 8);
        writer.write(std::as_bytes(std::span("1234", 4)));
        writer.write(std::as_bytes(std::span("5678", 4)));
        writer.end();
        writer.add("empty", "");
        writer.commit();
        const impl::FilePieces file(path);
        const impl::ZipDirectory directory(file);
        CHECK(directory.entries().size() == 3);
        const impl::ZipEntry* const entry = directory.find("folder/b");
        REQUIRE(entry != nullptr);
        CHECK(entry->size == 8);
        const std::uint64_t place = directory.data_of(*entry);
        CHECK(place % 64 == 0);
        CHECK(read_bytes(path).substr(place, 8) == "12345678");
    }
}
