// SPDX-License-Identifier: Apache-2.0
//
// PlanFile: keeps the algorithms of cuDNN and cuBLASLt that a run has used in a file, so that another run uses the same
// ones and has the same bits: `PlanFile plans("run1/cudnn-plans.txt"); ... CudaOptions{.plan_choices = plans.choices()}
// ... plans.write();`
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/device/plan_choices.hpp>
#include <cupola/io/atomic_file.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class PlanFile {
public:
    /// Reads the file if it is there; with an empty path the choices are kept for the process alone. Throws DataError
    /// where it cannot be read, InvalidArgument where it is not such a file. `writes` is false for a process that only
    /// reads it.
    [[gnu::cold]] explicit PlanFile(std::string path, bool writes = true) : path_(std::move(path)), writes_(writes) {
        if (!path_.empty()) written_ = contents_of(path_);
        choices_ = written_.empty() ? std::make_shared<PlanChoices>() : std::make_shared<PlanChoices>(written_, path_);
    }

    /// Never null.
    [[nodiscard]] const std::shared_ptr<PlanChoices>& choices() const { return choices_; }

    /// Writes the choices made since. The file is written completely or not at all.
    [[gnu::cold]] void write() {
        if (path_.empty() || !writes_) return;
        std::string now = choices_->to_text();
        if (now == written_) return;
        AtomicFile file(path_);
        file.write(std::as_bytes(std::span(now)));
        file.commit();
        written_ = std::move(now);
    }

private:
    /// Empty where there is no such file.
    [[nodiscard, gnu::cold]] static std::string contents_of(const std::string& path) {
        const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
        if (file == nullptr && errno == ENOENT) return {};
        require<DataError>(file != nullptr, path, " cannot be read: ", std::strerror(errno));
        std::string contents;
        char block[4096];
        while (const std::size_t count = std::fread(block, 1, sizeof block, file.get())) contents.append(block, count);
        require<DataError>(std::ferror(file.get()) == 0, path, " cannot be read: ", std::strerror(errno));
        return contents;
    }

    std::string path_;
    bool writes_;
    std::shared_ptr<PlanChoices> choices_;
    std::string written_;
};

}}  // namespace cupola::CUPOLA_ABI
