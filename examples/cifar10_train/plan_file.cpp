// SPDX-License-Identifier: Apache-2.0
#include "plan_file.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>

#include <cupola/io/atomic_file.hpp>

namespace cifar10 {

using namespace cupola;

namespace {

/// Empty where there is no such file.
std::string contents_of(const std::string& path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
    if (file == nullptr && errno == ENOENT) return {};
    require<DataError>(file != nullptr, path, " cannot be read: ", std::strerror(errno));
    std::string contents;
    char block[4096];
    while (const std::size_t count = std::fread(block, 1, sizeof block, file.get())) contents.append(block, count);
    require<DataError>(std::ferror(file.get()) == 0, path, " cannot be read: ", std::strerror(errno));
    return contents;
}

}  // namespace

PlanFile::PlanFile(const TrainOptions& options)
    : path_(!options.plan_choices.empty() || options.train_dir.empty() ? options.plan_choices
                                                                       : options.train_dir + "/cudnn-plans.txt"),
      writes_(options.writes()) {
    if (path_.empty()) return;
    written_ = contents_of(path_);
    choices_ = written_.empty() ? std::make_shared<PlanChoices>() : std::make_shared<PlanChoices>(written_, path_);
}

void PlanFile::write() {
    if (choices_ == nullptr || !writes_) return;
    std::string now = choices_->to_text();
    if (now == written_) return;
    AtomicFile file(path_);
    file.write(std::as_bytes(std::span(now)));
    file.commit();
    written_ = std::move(now);
}

}  // namespace cifar10
