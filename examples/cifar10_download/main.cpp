// SPDX-License-Identifier: Apache-2.0
//
// The command line of cifar10_download.
#include <string>

#include "../command_line.hpp"
#include "download.hpp"

namespace {

CLI::Validator hexadecimal(std::size_t digits) {
    const auto check = [=](const std::string& given) -> std::string {
        if (given.size() == digits && given.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos) return {};
        return given + " is not " + std::to_string(digits) + " hexadecimal digits";
    };
    return {check, ""};
}

}  // namespace

int main(int argc, char** argv) {
    using namespace command_line;
    cifar10::DownloadOptions options;
    const std::string author = options.sha256;
    options.sha256.clear();
    std::string data_dir = "cifar10_data";
    CLI::App app{
        "Downloads CIFAR-10's binary files, checks them and unpacks them to cifar-10-batches-bin in --data-dir,\n"
        "completely or not at all. A download that was interrupted is resumed.",
        "cifar10_download"};
    app.add_option("--data-dir", data_dir, "Folder for the data set")->capture_default_str()->check(not_empty());
    app.add_option("--url", options.url, "URL of the archive: http, https or file")
        ->capture_default_str()
        ->check(not_empty("address"));
    app.add_option("--sha256", options.sha256,
                   "Checksum of the archive. Default, without --md5: the one of the author's file")
        ->check(hexadecimal(64));
    app.add_option("--md5", options.md5, "Checksum of the archive")->check(hexadecimal(32));
    app.add_flag("--wait", options.waits, "Wait for another process that downloads to the same folder");
    app.add_flag("--json", options.json, "Print each line as a JSON object");
    return run(app, argc, argv, [&] {
        if (options.sha256.empty() && options.md5.empty()) options.sha256 = author;
        cifar10::ensure_cifar10(data_dir, options);
        return 0;
    });
}
