// SPDX-License-Identifier: Apache-2.0
// The tutorial's network in dlib, as cupola_cifar10.cpp has it in Cupola: network, loss, optimiser, a trainer on
// several devices and the training loop in one file. dlib has no local response normalisation, so its network is two
// kinds of layer smaller. It pads a pool on both sides; the extents are the tutorial's. Only its cost to the compiler
// is measured.
#include <array>
#include <vector>

#include <dlib/dnn.h>

using image = std::array<dlib::matrix<float>, 3>;

template <typename below>
using pool = dlib::add_layer<dlib::max_pool_<3, 3, 2, 2, 1, 1>, below>;

// clang-format off
using network = dlib::loss_multiclass_log<dlib::fc<
    10, dlib::relu<dlib::fc<192, dlib::relu<dlib::fc<384,
    pool<dlib::relu<dlib::con<64, 5, 5, 1, 1,
    pool<dlib::relu<dlib::con<64, 5, 5, 1, 1, dlib::input<image>>>>>>>>>>>>>;
// clang-format on

double train(const std::vector<image>& images, const std::vector<unsigned long>& labels) {
    network net;
    dlib::dnn_trainer<network, dlib::sgd> trainer(net, dlib::sgd(0.004F, 0.0F), {0, 1});
    trainer.set_learning_rate(0.1);
    trainer.set_mini_batch_size(128);
    trainer.set_max_num_epochs(10);
    trainer.be_verbose();
    trainer.train(images, labels);
    return trainer.get_average_loss();
}
