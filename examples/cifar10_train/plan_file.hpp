// SPDX-License-Identifier: Apache-2.0
//
// The file of --plan-choices: which of cuDNN's engines were taken, so that another run takes the same.
#pragma once

#include <memory>
#include <string>

#include <cupola/device/plan_choices.hpp>

#include "options.hpp"

namespace cifar10 {

class PlanFile {
public:
    /// Reads the file if it is there: of --plan-choices, or cudnn-plans.txt in --train-dir. Where neither is named it
    /// is in no file. Throws DataError where it cannot be read, InvalidArgument where it is not such a file.
    explicit PlanFile(const TrainOptions& options);

    /// Null where there is no file: each run then takes what cuDNN ranks first.
    [[nodiscard]] const std::shared_ptr<cupola::PlanChoices>& choices() const { return choices_; }

    /// Writes what has been chosen since. The file is there as a whole or not at all.
    void write();

private:
    std::string path_;
    bool writes_;
    std::shared_ptr<cupola::PlanChoices> choices_;
    std::string written_;
};

}  // namespace cifar10
