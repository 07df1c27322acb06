// SPDX-License-Identifier: Apache-2.0
//
// Hogwild: replicas that update one set of parameters c at the same time, without locks (Niu, Recht, Re, Wright 2011).
// A replica copies c, computes a batch with the copy x and updates it, and adds the change to c:
//
//   x = c,    the optimiser's step of x,    c = c + the change of x
//
//   DataParallel<Net, Loss, Sgd, Hogwild, Host> training({.replicas = 4, .devices = 4});
//
// Each element of c is read and written by relaxed atomic operations, so a change of another replica between the two
// may be lost, and a copy may have elements of several times; neither is undefined behaviour. There is no order, hence
// no order log, and the bits of a run cannot be repeated unless it has one device. The state of the optimiser is each
// replica's own. All else is as with Asynchronous (parallel/kinds/asynchronous.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_training.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

class HogwildExchange final : public CentreExchange {
public:
    [[nodiscard]] std::int64_t every() const override { return 1; }
    [[nodiscard]] bool is_due(std::int64_t) const override { return true; }
    [[nodiscard]] bool keeps_values() const override { return true; }
    [[nodiscard]] bool has_state() const override { return false; }
    [[nodiscard]] bool is_ordered() const override { return false; }
    void before_passes(const ExchangeArenas& at, const Segment& s) const override {
        for (std::int64_t i = s.offset; i < s.offset + s.size; ++i) at.parameters[i] = at.kept[i] = read(at.centre[i]);
    }
    void exchange(const ExchangeArenas& at, const Segment& s) const override {
        for (std::int64_t i = s.offset; i < s.offset + s.size; ++i)
            std::atomic_ref<float>(at.centre[i])
                .store(read(at.centre[i]) + (at.parameters[i] - at.kept[i]), std::memory_order_relaxed);
    }
    void read_centre(const ExchangeArenas& at, const Segment& s) const override {
        for (std::int64_t i = s.offset; i < s.offset + s.size; ++i) at.row[i] = read(at.centre[i]);
    }

private:
    [[nodiscard]] static float read(float& value) {
        return std::atomic_ref<float>(value).load(std::memory_order_relaxed);
    }
};

}  // namespace impl

struct Hogwild {
    static constexpr std::string_view name = "Hogwild";
    static constexpr bool asynchronous = true;

    /// The largest number of steps in flight, 1 or more.
    std::int64_t ahead = 4;

    [[nodiscard]] AsynchronousRun run() const { return {.ahead = ahead, .rule = std::string(name)}; }
    [[nodiscard]] std::unique_ptr<CentreExchange> exchange(int /*replicas*/) const {
        return std::make_unique<impl::HogwildExchange>();
    }
    /// "Hogwild, without an order, at most 4 steps ahead"
    [[nodiscard]] std::string description() const {
        return text(name, ", without an order, at most ", ahead, ahead == 1 ? " step ahead" : " steps ahead");
    }
    template <class D>
    [[nodiscard]] static consteval CompileTimeMessage diagnostic() {
        return impl::asynchronous_diagnostic<Hogwild, D>();
    }
};

}}  // namespace cupola::CUPOLA_ABI
