// SPDX-License-Identifier: Apache-2.0
//
// The ImageFolder reader: the sample in the repository, a folder against its archives, and one message for each way in
// which a data set can be wrong.
#include <cupola/data/image_folder.hpp>

#include "../test.hpp"

#include <cupola/data/image_file.hpp>

#include "few_threads.hpp"
#include "files_support.hpp"
#include "support.hpp"

using namespace cupola_tests;

namespace {

std::string refusal(const std::string& path, int workers = 1, const ImageFolderOptions& limits = {}) {
    return message_of<DataError>([&] { static_cast<void>(read_image_folder(path, workers, limits)); });
}

bool equal(const ImageSet& a, const ImageSet& b) {
    bool same = a.size() == b.size() && a.sample_shape() == b.sample_shape() && a.classes() == b.classes();
    for (std::int64_t i = 0; same && i < a.size(); ++i) {
        const auto one = a.sample(i), other = b.sample(i);
        same = a.label(i) == b.label(i) && std::equal(one.begin(), one.end(), other.begin(), other.end());
    }
    return same;
}

}  // namespace

TEST_CASE("the sample in the repository has 5,000 and 1,000 images of 10 classes") {
    const ImageData data = read_image_folder(CUPOLA_SAMPLE_DATA, 2);
    CHECK(data.train.size() == 5000);
    CHECK(data.test.size() == 1000);
    CHECK(data.train.sample_shape() == Shape{32, 32, 3});
    REQUIRE(data.train.class_count() == 10);
    CHECK(data.train.classes()[0] == "airplane");
    CHECK(data.train.classes()[9] == "truck");
    std::vector<int> train(10), test(10);
    for (std::int64_t i = 0; i < data.train.size(); ++i) ++train[static_cast<std::size_t>(data.train.label(i))];
    for (std::int64_t i = 0; i < data.test.size(); ++i) ++test[static_cast<std::size_t>(data.test.label(i))];
    CHECK(train == std::vector<int>(10, 500));
    CHECK(test == std::vector<int>(10, 100));
    // Means of all training pixels; CIFAR-10's own are 125.3, 123.0 and 113.9 (of 50,000 images).
    double mean[3] = {};
    for (std::int64_t i = 0; i < data.train.size(); ++i) {
        for (std::size_t k = 0; k < 3072; ++k) mean[k % 3] += data.train.sample(i)[k] / (5000.0 * 1024.0);
    }
    CHECK(mean[0] == doctest::Approx(125.3).epsilon(0.02));
    CHECK(mean[1] == doctest::Approx(123.0).epsilon(0.02));
    CHECK(mean[2] == doctest::Approx(113.9).epsilon(0.02));
}

TEST_CASE("images are read in grey or in colour, as requested") {
    const TemporaryFolder folder;
    write_all(folder, "set", small_image_folder());
    const ImageData colour = read_image_folder(folder.path("set"));
    const ImageData grey = read_image_folder(folder.path("set"), 1, {.channels = 1});
    REQUIRE(grey.train.size() == colour.train.size());
    CHECK(grey.train.sample_shape() == Shape{8, 6, 1});
    for (std::int64_t i = 0; i < grey.train.size(); ++i) {
        const auto c = colour.train.sample(i), g = grey.train.sample(i);
        for (std::size_t k = 0; k < g.size(); ++k) {
            const double luma = 0.299 * c[3 * k] + 0.587 * c[3 * k + 1] + 0.114 * c[3 * k + 2];  // ITU-R BT.601
            CHECK(std::abs(luma - g[k]) < 2);
        }
    }
    CHECK(message_of<InvalidArgument>([&] { (void)read_image_folder(folder.path("set"), 1, {.channels = 4}); }) ==
          "images must have 1 channel (grey) or 3 (red, green, blue), not 4");
}

TEST_CASE("classes and images are in the order of their names, and pixels are red, green, blue") {
    const TemporaryFolder folder;
    write_all(folder, "set", small_image_folder());
    const ImageData data = read_image_folder(folder.path("set"));
    REQUIRE(data.train.size() == 6);
    CHECK(data.train.sample_shape() == Shape{8, 6, 3});
    CHECK(data.train.classes() == std::vector<std::string>{"cat", "dog"});
    const int expected[6][3] = {{200, 100, 0}, {200, 100, 40}, {200, 100, 80},
                                {0, 30, 220},  {40, 30, 220},  {80, 30, 220}};
    for (std::int64_t i = 0; i < 6; ++i) {
        CHECK(data.train.label(i) == i / 3);
        for (std::size_t k = 0; k < 8 * 6 * 3; ++k) {
            REQUIRE(std::abs(data.train.sample(i)[k] - expected[i][k % 3]) <= 3);  // JPEG is not exact
        }
    }
}

TEST_CASE("a folder and its archives give the same data set, for any number of threads") {
    const TemporaryFolder folder;
    const auto files = small_image_folder();
    write_all(folder, "set", files);
    const ImageData reference = read_image_folder(folder.path("set"), 1);
    CHECK(equal(reference.train, read_image_folder(folder.path("set"), 4).train));
    std::vector<std::pair<std::string, Bytes>>
        reversed;  // with a folder on top, entries for folders, and others' files
    for (const auto& [name, bytes] : files) reversed.insert(reversed.begin(), {"./top/" + name, bytes});
    reversed.insert(reversed.begin(), {"top/README.md", Bytes(5)});
    reversed.insert(reversed.begin(), {"top/train/._notes", Bytes(5)});
    reversed.insert(reversed.begin(), {"top/train/dog/", {}});
    for (const Packing packing : {Packing::tar, Packing::tar_xz, Packing::tar_gz, Packing::zip}) {
        write_archive(folder.path("plain"), files, packing);
        write_archive(folder.path("reversed"), reversed, packing);
        for (const char* name : {"plain", "reversed"}) {
            const ImageData data = read_image_folder(folder.path(name), 3);
            CHECK(equal(reference.train, data.train));
            CHECK(equal(reference.test, data.test));
        }
    }
}

TEST_CASE("the sample unpacked to a folder is the same data set") {
    const TemporaryFolder folder;
    archive* handle = archive_read_new();
    archive_read_support_filter_all(handle);
    archive_read_support_format_all(handle);
    REQUIRE(archive_read_open_filename(handle, CUPOLA_SAMPLE_DATA, 1 << 16) == ARCHIVE_OK);
    archive_entry* entry = nullptr;
    while (archive_read_next_header(handle, &entry) == ARCHIVE_OK) {
        if (archive_entry_filetype(entry) != AE_IFREG) continue;
        Bytes bytes(static_cast<std::size_t>(archive_entry_size(entry)));
        archive_read_data(handle, bytes.data(), bytes.size());
        folder.write(archive_entry_pathname(entry), bytes);
    }
    archive_read_free(handle);
    const ImageData packed = read_image_folder(CUPOLA_SAMPLE_DATA, 1), unpacked = read_image_folder(folder.path(), 4);
    CHECK(equal(packed.train, unpacked.train));
    CHECK(equal(packed.test, unpacked.test));
}

TEST_CASE("an archive that is truncated at any length is rejected") {
    const TemporaryFolder folder;
    for (const Packing packing : {Packing::tar, Packing::tar_xz, Packing::tar_gz, Packing::zip}) {
        const std::string path = folder.path("cut");
        write_archive(path, small_image_folder(), packing);
        Bytes whole = read_bytes(path);
        if (packing == Packing::tar) {  // zeros after its end mark only fill it up
            while (whole.size() > 1024 && std::all_of(whole.end() - 1536, whole.end(), [](auto b) { return b == 0; })) {
                whole.erase(whole.end() - 512, whole.end());
            }
        }
        CHECK(refusal(folder.write("cut", whole)) == "(no exception)");
        std::vector<std::size_t> lengths{0, 1, 5, 100, 511, 512, 513, 1024, whole.size() - 512, whole.size() - 12};
        for (std::size_t i = 1; i <= 9; ++i) lengths.push_back(whole.size() - i);
        for (std::size_t i = 1; i <= 20; ++i) lengths.push_back(whole.size() * i / 21);
        for (const std::size_t length : lengths) {
            if (length >= whole.size()) continue;
            const std::string message =
                refusal(folder.write("cut", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length))));
            CAPTURES(static_cast<int>(packing), length, message);
            CHECK((contains(message, "is truncated") || message == path + " is empty"));
        }
    }
}

TEST_CASE(
    "an archive of which only the compressed stream is truncated is rejected, wherever libarchive's buffers end") {
    // The tar fills whole buffers of 64 KiB, so all of it is read before the packing's own last bytes are.
    const TemporaryFolder folder;
    const auto files = small_image_folder();
    std::vector<std::pair<std::string, Bytes>> packed(files.begin(), files.end());
    packed.insert(packed.begin(), {"train/.fill", {}});
    write_archive(folder.path("plain.tar"), packed, Packing::tar);
    packed.front().second.resize(65'536 - std::filesystem::file_size(folder.path("plain.tar")) % 65'536);
    write_archive(folder.path("plain.tar"), packed, Packing::tar);
    REQUIRE(std::filesystem::file_size(folder.path("plain.tar")) % 65'536 == 0);
    for (const Packing packing : {Packing::tar_gz, Packing::tar_xz}) {
        write_archive(folder.path("cut"), packed, packing);
        const Bytes whole = read_bytes(folder.path("cut"));
        CHECK(refusal(folder.path("cut")) == "(no exception)");
        for (std::ptrdiff_t missing = 1; missing <= 8; ++missing) {
            CAPTURE(missing);
            CHECK(contains(refusal(folder.write("cut", Bytes(whole.begin(), whole.end() - missing))), "is truncated"));
        }
    }
}

TEST_CASE("the truncated archive of the sample data is rejected") {
    const TemporaryFolder folder;
    const Bytes whole = read_bytes(CUPOLA_SAMPLE_DATA);
    for (const std::size_t length : {whole.size() / 3, whole.size() - 40'000, whole.size() - 1}) {
        const std::string path =
            folder.write("cut.tar.xz", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
        const std::string message = refusal(path);
        CAPTURE(message);
        CHECK(message.starts_with(path));
        CHECK(contains(message, " is truncated or is not an archive: "));
    }
}

TEST_CASE("a file that is not a JPEG, or is a part of one, is rejected by name") {
    const TemporaryFolder folder;
    const Bytes noisy = jpeg(8, 6, 0, 0, 0, true);
    const Bytes half(noisy.begin(), noisy.begin() + static_cast<std::ptrdiff_t>(noisy.size() - 60));
    const Bytes text{'h', 'e', 'l', 'l', 'o'};
    for (const Bytes& bytes : {text, half, Bytes{}, Bytes(noisy.begin(), noisy.begin() + 30)}) {
        auto files = small_image_folder();
        files["train/cat/1.jpg"] = bytes;
        write_all(folder, "set", files);
        write_archive(folder.path("set.tar"), files, Packing::tar);
        for (const char* name : {"set", "set.tar"}) {
            for (const int workers : {1, 4}) {
                const std::string message = refusal(folder.path(name), workers);
                CAPTURE(message);
                CHECK(message.starts_with(folder.path(name) + ": train/cat/1.jpg is " +
                                          (bytes.empty() ? "empty" : "not a readable JPEG image: ")));
            }
        }
    }
}

TEST_CASE("of several bad images the first is reported, for any number of threads") {
    const TemporaryFolder folder;
    auto files = small_image_folder();
    for (const char* name : {"train/cat/2.jpg", "train/dog/0.JPEG", "train/dog/2.JPEG"}) files[name] = Bytes(10);
    write_all(folder, "set", files);
    for (const int workers : {1, 2, 3, 6, 50})
        CHECK(contains(refusal(folder.path("set"), workers), "train/cat/2.jpg is not"));
}

TEST_CASE("a folder in a process with room for two threads" * doctest::skip()) {
    const TemporaryFolder folder;
    write_all(folder, "set", small_image_folder());
    limit_threads(2);
    CHECK_THROWS_WITH_AS(
        (void)read_image_folder(folder.path("set"), 4),
        "only 2 of 3 threads for the decoding of images could be started: Resource temporarily unavailable "
        "(error 11)",
        Error);
    CHECK(read_image_folder(folder.path("set"), 3).train.size() == 6);
}

TEST_CASE("a thread for decoding that cannot be started is an error with its number" *
          doctest::skip(!threads_can_be_limited)) {
    const ChildResult child = run_in_child("a folder in a process with room for two threads", {});
    CHECK_MESSAGE(child.passed, child.output);
}

TEST_CASE("an image of another size is rejected with both sizes") {
    const TemporaryFolder folder;
    auto files = small_image_folder();
    files["test/dog/0.jpg"] = jpeg(6, 8, 1, 2, 3);
    write_all(folder, "set", files);
    CHECK(
        refusal(folder.path("set")) ==
        folder.path("set") + ": test/dog/0.jpg is 6 x 8 pixels, and " + folder.path("set") +
            ": train/cat/0.jpg is 8 x 6: all images of a data set must have the same size; the option fit makes them so");
}

TEST_CASE("images of different sizes get one by the option fit, from a folder and from an archive") {
    const TemporaryFolder folder;
    auto files = small_image_folder();
    files["test/dog/0.jpg"] = jpeg(13, 8, 1, 2, 3, true);
    files["train/cat/0.jpg"] = jpeg(31, 50, 1, 2, 3, true);
    write_all(folder, "set", files);
    write_archive(folder.path("set.zip"), files, Packing::zip);
    const ImageFit fit{.shorter_side = 7, .height = 6, .width = 5, .filter = ResizeFilter::bicubic};
    const ImageData data = read_image_folder(folder.path("set"), 2, {.fit = fit});
    CHECK(data.train.sample_shape() == Shape{6, 5, 3});
    CHECK(data.train.size() == 6);
    const Image expected = fit(read_image(folder.path("set/train/cat/0.jpg")));
    CHECK(std::ranges::equal(data.train.sample(0), expected.pixels));
    CHECK(equal(data.train, read_image_folder(folder.path("set.zip"), 1, {.fit = fit}).train));
    CHECK(equal(data.test, read_image_folder(folder.path("set.zip"), 3, {.fit = fit}).test));
    CHECK(read_image_folder<float>(folder.path("set"), 1, {.channels = 1, .fit = fit}).test.sample_shape() ==
          Shape{6, 5, 1});

    const auto mistake = [&](const ImageFit& wrong) {
        return message_of<InvalidArgument>([&] { (void)read_image_folder(folder.path("set"), 1, {.fit = wrong}); });
    };
    CHECK(mistake({8, 9, 8}) == "images with a shorter side of 8 pixels have no part of 9 x 8");
    CHECK(mistake({8, 8, 9}) == "images with a shorter side of 8 pixels have no part of 8 x 9");
    CHECK(mistake({8, 0, 8}) == "the height and width of an image must be at least 1, not 0 x 8");
    CHECK(refusal(folder.path("set"), 1, {.fit = fit, .pixels_per_image = 200}) ==
          folder.path("set") + ": train/cat/0.jpg has 31 x 50 pixels; at most 200 are accepted");
    files["test/dog/0.jpg"] = jpeg(2, 800, 1, 2, 3);
    write_all(folder, "long", files);
    CHECK(refusal(folder.path("long"), 1, {.fit = ImageFit{200, 6, 5}}) ==
          folder.path("long") + ": test/dog/0.jpg is 2 x 800 pixels, too long for a shorter side of 200");
}

TEST_CASE("a layout that is not ImageFolder's is rejected, and the message names what is missing") {
    const TemporaryFolder folder;
    const auto without = [&](const std::string& part) {
        auto files = small_image_folder();
        std::erase_if(files, [&](const auto& file) { return contains(file.first, part); });
        return files;
    };
    const auto both = [&](const std::map<std::string, Bytes>& files, const std::string& expected) {
        std::filesystem::remove_all(folder.path("set"));
        std::filesystem::create_directory(folder.path("set"));
        write_all(folder, "set", files);
        write_archive(folder.path("set.zip"), files, Packing::zip);
        for (const char* name : {"set", "set.zip"}) CHECK(refusal(folder.path(name)) == folder.path(name) + expected);
    };
    const std::string expected =
        "expected train/<class>/ and test/<class>/ with images, or the option .split of read_image_folder";
    both(without("test/"), " has no folder test/; " + expected);
    both(without("train/"), " has no folder train/; " + expected);
    both(without("dog/"), " has 1 class folders in train/; classification needs at least 2");
    both(without("test/dog/"), " has 1 class folders in test/; classification needs at least 2");
    auto more = small_image_folder();
    more["test/eel/0.jpg"] = jpeg(8, 6, 1, 2, 3);
    both(more, " has a class folder test/eel but no train/eel");
    more["train/eel/0.jpg"] = jpeg(8, 6, 1, 2, 3);
    more.erase("test/eel/0.jpg");
    both(more, " has a class folder train/eel but no test/eel");
}

TEST_CASE("images without a folder test/ are split by an option, as split() does it") {
    const TemporaryFolder folder;
    // 8 and 4 images, each of its own shade; one class is called as a folder of a split.
    std::map<std::string, Bytes> images;
    for (int i = 0; i < 12; ++i) {
        const std::string name = (i < 8 ? "ant/" : "test/") + std::to_string(100 + i) + ".png";
        images[name] = png_of(1, 2, 8, 0, {static_cast<std::uint8_t>(i), 7});
    }
    const auto below = [&](const std::string& prefix) {
        std::map<std::string, Bytes> files;
        for (const auto& [name, bytes] : images) files[prefix + name] = bytes;
        return files;
    };
    auto both = below("train/");
    both.merge(below("test/"));
    write_all(folder, "both", both);
    const ImageData whole = read_image_folder(folder.path("both"));
    const auto with_readme = [&](std::map<std::string, Bytes> files, const std::string& name) {
        files[name] = Bytes(4);
        return files;
    };
    write_all(folder, "set", with_readme(below(""), "README"));
    write_all(folder, "below", with_readme(below("train/"), "train/README"));
    write_archive(folder.path("set.zip"), with_readme(below(""), "README"), Packing::zip);
    write_archive(folder.path("below.tar"), with_readme(below("pets/train/"), "pets/train/README"), Packing::tar);
    write_archive(folder.path("pets.tar.gz"), with_readme(below("pets/"), "pets/README"), Packing::tar_gz);
    for (const SplitOptions& options : {SplitOptions{.validation = 0.25, .seed = 3, .stratified = true},
                                        SplitOptions{.validation = 0.4, .seed = 2}}) {
        const auto parts = split(whole.train, options);
        for (const char* const name : {"set", "below", "set.zip", "below.tar", "pets.tar.gz"}) {
            CAPTURE(name);
            const ImageData data = read_image_folder(folder.path(name), 2, {.split = options});
            CHECK(data.train.classes() == std::vector<std::string>{"ant", "test"});
            CHECK(data.test.classes() == data.train.classes());
            const auto same = [](const ImageSet& own, const Subset<ImageSet>& part) {
                bool equal = own.size() == part.size();
                for (std::int64_t i = 0; equal && i < own.size(); ++i)
                    equal = std::ranges::equal(own.sample(i), part.sample(i)) && own.label(i) == part.label(i);
                return equal;
            };
            CHECK(same(data.train, parts.training));
            CHECK(same(data.test, parts.validation));
        }
    }
}

TEST_CASE("an option that splits images which have a folder test/, or leaves a class without images, is rejected") {
    const TemporaryFolder folder;
    const ImageFolderOptions options{.split = {.validation = 0.5}};
    const auto message = [&](const std::map<std::string, Bytes>& files, const ImageFolderOptions& own) {
        std::filesystem::remove_all(folder.path("set"));
        write_all(folder, "set", files);
        write_archive(folder.path("set.zip"), files, Packing::zip);
        const std::string of_folder = refusal(folder.path("set"), 1, own);
        const std::string of_archive = refusal(folder.path("set.zip"), 1, own);
        CHECK(of_folder.substr(folder.path("set").size()) == of_archive.substr(folder.path("set.zip").size()));
        return of_folder.substr(folder.path("set").size());
    };
    CHECK(message(small_image_folder(), options) ==
          " has a folder test/, and the option .split is for images without it");
    std::map<std::string, Bytes> files{{"a/0.jpg", jpeg(8, 6, 1, 2, 3)}, {"b/0.jpg", jpeg(8, 6, 1, 2, 3)}};
    CHECK(message(files, options) ==
          ": the split leaves no image of a for training; .stratified = true takes the same fraction of every class");
    CHECK(message(files, {.split = {.validation = 0.5, .stratified = true}}) ==
          ": the split leaves no image of a for training");
    files["b/note.txt"] = Bytes(3);
    CHECK(contains(message_of<DataError>([&] {
                       write_all(folder, "set", files);
                       (void)read_image_folder(folder.path("set"), 1, options);
                   }),
                   "b/note.txt is not a .jpg, .jpeg or .png file"));
    write_archive(folder.path("set.zip"), files, Packing::zip);
    CHECK(contains(refusal(folder.path("set.zip"), 1, options), "b/note.txt is not a .jpg, .jpeg or .png file"));
    files.erase("b/note.txt");
    write_all(folder, "other", files);
    CHECK(contains(message_of<InvalidArgument>(
                       [&] { (void)read_image_folder(folder.path("other"), 1, {.split = {.validation = 1.5}}); }),
                   "must be above 0 and below 1, not 1.5"));
    files.erase("b/0.jpg");
    CHECK(message(files, options) == " has 1 class folders; classification needs at least 2");
}

TEST_CASE("an empty class folder is rejected by name") {
    const TemporaryFolder folder;
    const auto files = small_image_folder();
    write_all(folder, "set", files);
    std::filesystem::create_directory(folder.path("set/train/eel"));
    CHECK(refusal(folder.path("set")) == folder.path("set") + " has no image in the class folder train/eel");
    std::vector<std::pair<std::string, Bytes>> packed(files.begin(), files.end());
    packed.emplace_back("test/ant/", Bytes{});
    packed.emplace_back("train/ant/", Bytes{});
    write_archive(folder.path("set.tar.gz"), packed, Packing::tar_gz);
    CHECK(refusal(folder.path("set.tar.gz")) ==
          folder.path("set.tar.gz") + " has no image in the class folder train/ant");
    // An option that splits reads the class folders themselves, and an archive may have more folders around them.
    const ImageFolderOptions splits{.split = {.validation = 0.5}};
    for (const std::string root : {"", "train/", "pets/", "pets/train/"}) {
        CAPTURE(root);
        std::map<std::string, Bytes> classes{{root, {}}, {root + "eel/", {}}};
        if (root.empty()) classes.erase(root);
        for (const std::string name : {"ant/0.jpg", "ant/1.jpg", "dog/0.jpg", "dog/1.jpg"})
            classes[root + name] = jpeg(8, 6, 1, 2, 3);
        write_archive(folder.path("classes.zip"), classes, Packing::zip);
        CHECK(refusal(folder.path("classes.zip"), 1, splits) == folder.path("classes.zip") +
                                                                    " has no image in the class folder " +
                                                                    (root.ends_with("train/") ? "train/eel" : "eel"));
    }
}

TEST_CASE("a file of another type in a class folder is rejected, not skipped") {
    const TemporaryFolder folder;
    auto files = small_image_folder();
    files["train/dog/extra.gif"] = Bytes(4);
    write_all(folder, "set", files);
    write_archive(folder.path("set.tar"), files, Packing::tar);
    CHECK(refusal(folder.path("set")) ==
          folder.path("set") +
              "/train/dog/extra.gif is not a .jpg, .jpeg or .png file; a class folder may contain nothing else");
    CHECK(refusal(folder.path("set.tar")) ==
          folder.path("set.tar") +
              ": train/dog/extra.gif is not a .jpg, .jpeg or .png file; a class folder may contain nothing else");
}

TEST_CASE("an archive with an image twice, or with two data sets, is rejected") {
    const TemporaryFolder folder;
    const auto files = small_image_folder();
    std::vector<std::pair<std::string, Bytes>> packed(files.begin(), files.end());
    packed.push_back(packed.front());
    write_archive(folder.path("twice.tar"), packed, Packing::tar);
    CHECK(refusal(folder.path("twice.tar")) == folder.path("twice.tar") + ": test/cat/0.jpg appears twice");
    packed.back().first = "other/" + packed.back().first;
    write_archive(folder.path("two.tar"), packed, Packing::tar);
    CHECK(refusal(folder.path("two.tar")) ==
          folder.path("two.tar") + " contains more than one data set: other/test/cat/0.jpg is not below ''");
}

TEST_CASE("exceeding a limit is an error with that limit in its message") {
    const TemporaryFolder folder;
    write_all(folder, "set", small_image_folder());
    write_archive(folder.path("set.tar"), small_image_folder(), Packing::tar);
    for (const char* name : {"set", "set.tar"}) {
        const std::string path = folder.path(name);
        CHECK(refusal(path, 1, {.files = 7}) == path + " has more than 7 files");
        CHECK(contains(refusal(path, 1, {.bytes_per_file = 100}), ".jpg is larger than 100 bytes"));
        CHECK(refusal(path, 1, {.pixels_per_image = 47}) ==
              path + ": train/cat/0.jpg has 8 x 6 pixels; at most 47 are accepted");
    }
    CHECK(refusal(folder.path("set.tar"), 1, {.total_bytes = 1000}) ==
          folder.path("set.tar") + " unpacks to more than 1000 bytes");
    CHECK(refusal(folder.path("set"), 1, {.total_bytes = 800}) ==
          folder.path("set") + " decodes to more than 800 bytes: 6 images of 8 x 6");
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(read_image_folder(folder.path("set"), 0)); }) ==
          "the number of decoding threads must be 1 to 1024, not 0");
}

TEST_CASE("images of a folder and of an archive are upright as their EXIF says") {
    const TemporaryFolder folder;
    auto files = small_image_folder();
    Bytes turned;
    int y = 0;
    turned =
        jpeg_of_rows(6, 8, [&](Bytes& row) { std::fill(row.begin(), row.end(), static_cast<std::uint8_t>(40 * y++)); });
    files["train/cat/0.jpg"] = with_exif(turned, exif(8));  // the first image, whose size all others must have
    files["train/dog/9.jpg"] = with_exif(turned, exif(6));
    write_all(folder, "set", files);
    write_archive(folder.path("set.tar.gz"), files, Packing::tar_gz);
    const ImageData data = read_image_folder(folder.path("set"));
    CHECK(data.train.sample_shape() == Shape{8, 6, 3});
    for (std::size_t x = 0; x < 6; ++x) {
        CHECK(std::abs(data.train.sample(0)[3 * x] - 40 * static_cast<int>(x)) < 3);
        CHECK(std::abs(data.train.sample(6)[3 * x] - 40 * static_cast<int>(5 - x)) < 3);
    }
    const ImageData packed = read_image_folder(folder.path("set.tar.gz"), 2);
    CHECK(equal(packed.train, data.train));
    CHECK(equal(packed.test, data.test));
}

TEST_CASE("images with a fault that leaves their pixels whole are read, and said once") {
    const TemporaryFolder folder;
    auto files = small_image_folder();
    write_all(folder, "set", files);
    const ImageData whole = read_image_folder(folder.path("set"));
    for (const char* const name : {"train/cat/2.jpg", "train/dog/1.JPEG", "test/dog/0.jpg"})
        files[name] = with_bytes_before_end(files[name]);
    write_all(folder, "set", files);
    for (const int workers : {1, 4}) {
        CHECK(standard_error_of([&] {
                  const ImageData data = read_image_folder(folder.path("set"), workers);
                  CHECK(equal(data.train, whole.train));
                  CHECK(equal(data.test, whole.test));
              }) == "warning: " + folder.path("set") +
                        ": train/cat/2.jpg has bytes before the end marker; it is read all the same, and so are 2 more "
                        "with such a fault\n");
    }
}

TEST_CASE("a folder of images of 16 bits per sample is read as floats") {
    const TemporaryFolder folder;
    std::map<std::string, Bytes> files;
    int shade = 1000;
    for (const char* const name : {"train/a/0.png", "train/b/0.png", "test/a/0.png", "test/b/0.png"})
        files[name] = png_of(1, 2, 16, 0, in_16_bits({shade += 1000, 65535}));
    write_all(folder, "set", files);
    write_archive(folder.path("set.zip"), files, Packing::zip);
    CHECK(refusal(folder.path("set"))
              .starts_with(folder.path("set") + ": train/a/0.png has 16 bits per sample, which bytes cannot hold"));
    for (const char* const name : {"set", "set.zip"}) {
        const BasicImageData<float> data = read_image_folder<float>(folder.path(name), 1, {.channels = 1});
        CHECK(data.train.sample_shape() == Shape{1, 2, 1});
        CHECK(data.train.sample(1)[0] == 3000);
        CHECK(data.test.sample(1)[0] == 5000);
        CHECK(data.test.sample(1)[1] == 65535);
    }
    files["test/b/1.png"] = png_of(1, 2, 8, 0, {1, 2});
    write_all(folder, "mixed", files);
    CHECK(message_of<DataError>([&] { (void)read_image_folder<float>(folder.path("mixed")); }) ==
          folder.path("mixed") + ": test/b/1.png has 8 bits per sample, and " + folder.path("mixed") +
              ": train/a/0.png has 16: all images of a data set must have the same range of values");
    write_all(folder, "bytes", small_image_folder());
    const ImageData bytes = read_image_folder(folder.path("bytes"));
    const BasicImageData<float> floats = read_image_folder<float>(folder.path("bytes"));
    CHECK(std::ranges::equal(bytes.train.sample(3), floats.train.sample(3),
                             [](std::uint8_t a, float b) { return static_cast<float>(a) == b; }));
}

TEST_CASE("a path that does not exist or may not be read is rejected, a file and a folder alike") {
    const TemporaryFolder folder;
    CHECK(refusal(folder.path("nowhere")) == folder.path("nowhere") + " does not exist");
    CHECK(refusal("/dev/null") == "/dev/null is not a regular file");
    write_all(folder, "set", small_image_folder());
    write_archive(folder.path("set.tar"), small_image_folder(), Packing::tar);
    constexpr auto none = std::filesystem::perms::none;
    std::filesystem::permissions(folder.path("set.tar"), none);
    std::filesystem::permissions(folder.path("set/train/cat/2.jpg"), none);
    const auto as_other = [&](const std::string& below) {
        return as_nobody([&] { return refusal(folder.path(below)); });
    };
    CHECK(as_other("set.tar") == folder.path("set.tar") + " cannot be read: Permission denied");
    CHECK(as_other("set") == folder.path("set/train/cat/2.jpg") + " cannot be read: Permission denied");
    std::filesystem::permissions(folder.path("set/train/dog"), none);
    CHECK(as_other("set") == folder.path("set/train/dog") + " cannot be read: Permission denied");
    std::filesystem::permissions(folder.path("set/train/dog"), std::filesystem::perms(0755));
}
